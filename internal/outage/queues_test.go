package outage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// rabbitQueue is a queue in a virtual host of its own.
type rabbitQueue struct {
	*rabbittest.Server
	conf rabbitmq.Config
}

func newRabbitQueue(t *testing.T) *rabbitQueue {
	t.Helper()
	srv := rabbittest.Start(t)
	return &rabbitQueue{srv, rabbitmq.Config{URL: srv.VHost(t), Queue: rabbittest.Queue(t), Declare: true, Prefetch: 32,
		Retry: []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second}}}
}

func (q *rabbitQueue) open(r *rig) (end, error) {
	conf := q.conf
	conf.Logger = r.log("rabbitmq")
	return rabbitmq.Open(r.Context(), conf)
}

// depth counts the messages of the queue and its rungs. The rungs are read twice: a
// message that moves from one to the queue or back is not missed.
func (q *rabbitQueue) depth(t *testing.T) (ready, held, dead int) {
	t.Helper()
	waiting := q.waiting(t)
	ready, held = q.Depth(t, q.conf.URL, q.conf.Queue)
	dead, _ = q.Depth(t, q.conf.URL, q.conf.Queue+".dead")
	return ready + max(waiting, q.waiting(t)), held, dead
}

// waiting counts the messages in the rungs.
func (q *rabbitQueue) waiting(t *testing.T) (n int) {
	t.Helper()
	for _, d := range q.conf.Retry {
		ready, held := q.Depth(t, q.conf.URL, fmt.Sprintf("%s.retry.%d", q.conf.Queue, d.Milliseconds()))
		n += ready + held
	}
	return n
}

// sqsQueue is a queue of the emulator, behind a proxy that loses and refuses. Tests keep it
// under 200 messages (internal/sqstest).
type sqsQueue struct {
	*sqstest.Server
	queue sqstest.Queue
	proxy *sqsfake.Server
}

const visibility = 4 * time.Second

func newSQSQueue(t *testing.T) *sqsQueue {
	t.Helper()
	srv := sqstest.Start(t)
	return &sqsQueue{srv, srv.Queue(t, sqstest.Spec{Dead: true, Visibility: visibility}), sqsfake.Start(t, sqsfake.Options{Upstream: srv.Endpoint()})}
}

func (q *sqsQueue) open(r *rig) (end, error) {
	aws := q.Config()
	return sqs.Open(r.Context(), sqs.Config{Queue: q.queue.Name, Endpoint: q.proxy.URL(), Wait: 2 * time.Second, AWS: &aws, Logger: r.log("sqs")})
}

func (q *sqsQueue) depth(t *testing.T) (ready, held, dead int) {
	t.Helper()
	d, set := q.Depth(t, q.queue.URL), q.Depth(t, q.queue.Dead.URL)
	return d.Visible + d.Delayed, d.InFlight, set.Visible + set.InFlight + set.Delayed
}
