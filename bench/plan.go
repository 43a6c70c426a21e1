package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
)

// plan is one turn of one system, as its worker is told it.
type plan struct {
	System   string
	Mode     string
	Messages int           // to be acknowledged
	Distinct int           // keys among them
	Handlers int           // at once
	Conns    int           // to Postgres
	Work     time.Duration // of a handler
	Hold     time.Duration // how long all calls stay under way, for modeInflight
	Size     int           // of a result, in bytes
	Postgres string        // URL of a database of its own
	AMQP     string        // URL of a virtual host of its own
	Redis    string        // address of a server, for a system that needs one
	Profile  string        // folder for the worker's profiles; "": none
}

// system is one way to do the work.
type system struct {
	about string // for the legend
	// unique: a message whose key came before is refused when it is sent, so it is never worked on.
	unique bool
	redis  bool // it needs one
	bare   bool // it does no work, so there are no calls and no results to look for
	// prepare makes the system's tables in an empty database, and returns how messages get to it.
	prepare func(ctx context.Context, p plan) (publisher, error)
	// work begins to work, in a process of its own, and says what it does by w.handle and w.settled.
	work func(ctx context.Context, w *worker) error
	// results counts the results of $1 bytes or more that are stored.
	results string
}

// systems by their names. "paidonce" is what the others are compared with.
var systems = map[string]system{
	"paidonce":  ours,
	"naive":     naive,
	"river":     riverAsync,
	"rivertx":   riverTx,
	"watermill": watermillRouter,
	"asynq":     asynqServer,
	"dbos":      dbosWorkflow,
	"ack":       ackEach,
	"ackmany":   ackMany,
}

func systemNames() []string { return slices.Sorted(maps.Keys(systems)) }

// publisher sends messages to a system, durably.
type publisher interface {
	publish(ctx context.Context, ms []doc) error
	close()
}

// action is the job's name.
const action = "doc.read"

// doc is the message: a paid call for a document. All messages of a document are equal.
type doc struct {
	Tenant string `json:"tenant"`
	Doc    string `json:"doc"`
	Text   string `json:"text"`
}

// JobKey names the job.
func (d doc) JobKey() job.Key { return job.K(d.Tenant, action, d.Doc) }

// messages are n of which a share repeats the key of one of the thousand before it. The same
// seed makes the same.
func messages(n, size int, repeated float64, seed uint64) (ms []doc, distinct int) {
	r := rand.New(rand.NewPCG(seed, 77))
	var all []doc
	for range n {
		if len(all) > 20 && r.Float64() < repeated {
			ms = append(ms, all[len(all)-1-r.IntN(min(len(all), 1000))])
			continue
		}
		d := doc{Tenant: fmt.Sprintf("tenant%03d", r.IntN(1000)), Doc: fmt.Sprintf("%012x-%012x", r.Uint64()>>16, r.Uint64()>>16)}
		d.Text = text(r, size-100)
		all, ms = append(all, d), append(ms, d)
	}
	return ms, len(all)
}

var words = strings.Fields("the invoice total amount due date vendor address line item quantity unit price tax " +
	"customer number reference payment terms net days order contract summary ticket reply status open closed agent")

// text is n bytes of words.
func text(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// published is the attribute with the time of sending, in Unix nanoseconds.
const published = "published"

// named is the attribute with the job's key, for counting: no system need read a message for that.
const named = "named"

// queueName is the queue in the virtual host of a turn.
const queueName = "jobs"

// amqpPublisher sends to the queue that all systems on RabbitMQ read.
type amqpPublisher struct{ *rabbitmq.Broker }

// newAMQP opens a publisher, which declares the queue.
func newAMQP(ctx context.Context, p plan) (publisher, error) {
	b, err := rabbitmq.Open(ctx, rabbitmq.Config{URL: p.AMQP, Queue: queueName, Declare: true})
	return amqpPublisher{b}, err
}

func (a amqpPublisher) publish(ctx context.Context, ms []doc) error {
	for part := range slices.Chunk(ms, 500) {
		var all []broker.Message
		for _, m := range part {
			body, err := json.Marshal(m)
			if err != nil {
				return err
			}
			all = append(all, broker.Message{Body: body, Attributes: map[string]string{
				consumer.Attribute: action, named: m.JobKey().String(), published: strconv.FormatInt(time.Now().UnixNano(), 10)}})
		}
		if err := a.Publish(ctx, all...); err != nil {
			return err
		}
	}
	return nil
}

func (a amqpPublisher) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a.Close(ctx) // nothing is under way
}
