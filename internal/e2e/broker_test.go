package e2e

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// Broker makes the queue of a World.
type Broker struct {
	Name string
	// Most is how many messages the queue of a test should hold at once.
	Most int
	// TakesBack says that a delivery comes again while the process that has it is frozen.
	TakesBack bool

	open func(*testing.T, Options) Queue
}

// Fit is n, or as many keys as may be submitted so many times.
func (b Broker) Fit(n, times int) int { return min(n, b.Most/times) }

// Queue is one queue with what belongs to it: the settings that lead a worker there, and
// a look into it.
type Queue struct {
	Env   map[string]string
	Depth func() Depth
}

// Depth is what lies in a queue.
type Depth struct{ Ready, Unacked, Delayed, Dead int }

// RabbitMQ gives every World a virtual host.
var RabbitMQ = Broker{Name: "RabbitMQ", Most: 100_000, open: func(t *testing.T, _ Options) Queue {
	srv, name := rabbittest.Start(t), rabbittest.Queue(t)
	url := srv.VHost(t)
	return Queue{
		Env: map[string]string{"PAIDONCE_BROKER_URL": url, "PAIDONCE_BROKER_QUEUE": name},
		Depth: func() (d Depth) {
			d.Ready, d.Unacked = srv.Depth(t, url, name)
			for _, ms := range rungs {
				ready, unacked := srv.Depth(t, url, fmt.Sprintf("%s.retry.%d", name, ms))
				d.Delayed += ready + unacked
			}
			ready, unacked := srv.Depth(t, url, name+".dead")
			d.Dead = ready + unacked
			return d
		},
	}
}}

// rungs are the delays of the queues that hold what was given back to RabbitMQ, in
// milliseconds.
var rungs = []int{1000, 5000, 15_000, 30_000, 60_000, 300_000, 900_000, 3_600_000}

// SQS gives every World a queue of the emulator, whose calls take as long as its queue
// is (internal/sqstest).
var SQS = Broker{Name: "SQS", Most: 180, TakesBack: true, open: func(t *testing.T, o Options) Queue {
	srv := sqstest.Start(t)
	q := srv.Queue(t, sqstest.Spec{Dead: true, MaxReceives: o.MaxReceives, Visibility: cmp.Or(o.Visibility, 20*time.Second),
		Attributes: map[string]string{"ReceiveMessageWaitTimeSeconds": "2"}}) // a worker that leaves waits for the end of its poll
	return Queue{
		Env: map[string]string{"PAIDONCE_BROKER_URL": "sqs:", "PAIDONCE_BROKER_QUEUE": q.Name, "PAIDONCE_BROKER_ENDPOINT": srv.Endpoint(),
			"PAIDONCE_BROKER_REGION": sqstest.Region, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
		Depth: func() Depth {
			d, dead := srv.Depth(t, q.URL), srv.Depth(t, q.Dead.URL)
			return Depth{d.Visible, d.InFlight, d.Delayed, dead.Visible + dead.InFlight + dead.Delayed}
		},
	}
}}

// OnEach runs a proof on every broker, side by side.
func OnEach(t *testing.T, proof func(*testing.T, Broker)) {
	t.Parallel()
	for _, b := range []Broker{RabbitMQ, SQS} {
		t.Run(b.Name, func(t *testing.T) { t.Parallel(); proof(t, b) })
	}
}
