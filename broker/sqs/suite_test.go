package sqs_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// bench is one queue of the emulator, with its dead-letter queue.
type bench struct {
	*testing.T
	srv   *sqstest.Server
	queue sqstest.Queue
	conf  sqs.Config
}

func newBench(t *testing.T, spec sqstest.Spec) *bench {
	t.Helper()
	b := &bench{T: t, srv: sqstest.Start(t)}
	spec.Dead = true
	if spec.Visibility == 0 {
		spec.Visibility = time.Minute
	}
	b.queue = b.srv.Queue(t, spec)
	b.conf = b.config(b.queue.Name)
	return b
}

func (b *bench) config(queue string) sqs.Config {
	cfg := b.srv.Config()
	return sqs.Config{Queue: queue, AWS: &cfg, Wait: time.Second, Logger: logger(b.T)}
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open opens a Broker with the bench's configuration as change makes it. It is
// closed with the test.
func (b *bench) open(change ...func(*sqs.Config)) *sqs.Broker {
	b.Helper()
	conf := b.conf
	for _, c := range change {
		c(&conf)
	}
	return open(b.T, conf)
}

func open(t *testing.T, conf sqs.Config) *sqs.Broker {
	t.Helper()
	s, err := sqs.Open(t.Context(), conf)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx) // what a test expects of it is in the test
	})
	return s
}

// soon is a context for one step that must succeed.
func (b *bench) soon() context.Context { return soon(b.T) }

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestSuite: what holds for every broker, on both types of queue.
func TestSuite(t *testing.T) {
	t.Run("standard", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, func(t *testing.T) *brokertest.Harness { return harness(t, false) })
	})
	t.Run("fifo", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, func(t *testing.T) *brokertest.Harness { return harness(t, true) })
	})
}

func harness(t *testing.T, fifo bool) *brokertest.Harness {
	t.Parallel() // the cases share nothing but the emulator
	b := newBench(t, sqstest.Spec{FIFO: fifo})
	source, direct := b.open(), b.open()
	return &brokertest.Harness{
		Source:    source,
		Second:    func() broker.Source { return b.open() },
		Publisher: direct,
		MissingQueue: func() broker.Publisher {
			return b.open(func(c *sqs.Config) { c.Queue = "missing" + map[bool]string{true: ".fifo"}[fifo] })
		},
		Close: func(s broker.Source) error { return s.(*sqs.Broker).Close(b.soon()) },
		DeadLetters: func(ctx context.Context) (ds []brokertest.DeadLetter, err error) {
			if b.srv.Depth(b, b.queue.Dead.URL).Visible == 0 {
				return nil, nil // looking for none takes a second
			}
			err = direct.Review(ctx, 1000, func(d broker.DeadLetter) broker.Fate {
				ds = append(ds, brokertest.DeadLetter{Message: d.Message, Reason: d.Reason})
				return broker.Keep
			})
			return ds, err
		},
		Depth: func(context.Context) (ready, held int, err error) {
			d := b.srv.Depth(b, b.queue.URL)
			return d.Visible, d.InFlight + d.Delayed, nil
		},
		Lapse: func(d broker.Delivery) {
			handle := sqs.Expire(source, d)
			_, err := b.srv.Client().ChangeMessageVisibility(b.soon(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &b.queue.URL, ReceiptHandle: &handle})
			if err != nil {
				b.Fatalf("end the hold of %q: %v", d.Body, err)
			}
			if _, err := source.Extend(b.soon(), d, time.Minute); !errors.Is(err, broker.ErrNotHeld) {
				b.Fatalf("extend after the deadline: %v", err)
			}
		},
		CountsReceives: true,
		LateAck:        !fifo,
		MinBody:        1,
		MaxBody:        1 << 20,
		TextOnly:       true,
		MaxHold:        12 * time.Hour,
		Backlog:        100, // the emulator walks the whole queue on every call
		DelayStep:      func(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) },
	}
}
