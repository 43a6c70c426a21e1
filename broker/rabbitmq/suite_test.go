package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// bench is one queue on a virtual host of its own.
type bench struct {
	*testing.T
	srv   *rabbittest.Server
	url   string
	queue string
	conf  rabbitmq.Config
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, srv: rabbittest.Start(t), queue: rabbittest.Queue(t)}
	b.url = b.srv.VHost(t)
	b.conf = rabbitmq.Config{URL: b.url, Queue: b.queue, Declare: true, Prefetch: 16,
		Retry: []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Minute}, Logger: logger(t)}
	return b
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open opens a Broker with the bench's configuration as change makes it. It is
// closed with the test.
func (b *bench) open(change ...func(*rabbitmq.Config)) *rabbitmq.Broker {
	b.Helper()
	conf := b.conf
	for _, c := range change {
		c(&conf)
	}
	r, err := rabbitmq.Open(b.soon(), conf)
	if err != nil {
		b.Fatalf("open: %v", err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.Close(ctx) // what a test expects of it is in the test
	})
	return r
}

// soon is a context for one step that must succeed.
func (b *bench) soon() context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	b.Cleanup(cancel)
	return ctx
}

// proxied lets a Broker connect through a fault proxy.
func (b *bench) proxied() (*faultproxy.Proxy, func(*rabbitmq.Config)) {
	p := faultproxy.Start(b, b.srv.Addr())
	u, err := url.Parse(b.url)
	if err != nil {
		b.Fatal(err)
	}
	u.Host = p.Addr()
	return p, func(c *rabbitmq.Config) { c.URL = u.String() }
}

func (b *bench) publish(p broker.Publisher, bodies ...string) {
	b.Helper()
	var ms []broker.Message
	for _, body := range bodies {
		ms = append(ms, broker.Message{Body: []byte(body)})
	}
	if err := p.Publish(b.soon(), ms...); err != nil {
		b.Fatalf("publish: %v", err)
	}
}

// receive takes n deliveries, all held at the same time.
func (b *bench) receive(s broker.Source, n int) []broker.Delivery {
	b.Helper()
	var ds []broker.Delivery
	for len(ds) < n {
		more, err := s.Receive(b.soon(), n-len(ds))
		if err != nil {
			b.Fatalf("receive: %v", err)
		}
		ds = append(ds, more...)
	}
	return ds
}

func (b *bench) one(s broker.Source) broker.Delivery { b.Helper(); return b.receive(s, 1)[0] }

func (b *bench) ack(s broker.Source, ds ...broker.Delivery) {
	b.Helper()
	for _, d := range ds {
		if err := s.Ack(b.soon(), d); err != nil {
			b.Fatalf("ack %q: %v", d.Body, err)
		}
	}
}

func (b *bench) close(r *rabbitmq.Broker) {
	b.Helper()
	if err := r.Close(b.soon()); err != nil {
		b.Fatalf("close: %v", err)
	}
}

// eventually waits until ok; what says what it waits for.
func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("never: %s", what)
		}
	}
}

// depth counts the queue's messages; those that wait out a delay are held.
func (b *bench) depth() (ready, held int) {
	ready, held = b.srv.Depth(b, b.url, b.queue)
	for _, q := range rabbitmq.RetryQueues(b.conf) {
		r, h := b.srv.Depth(b, b.url, q)
		held += r + h
	}
	return ready, held
}

func (b *bench) wantDepth(ready, held int) {
	b.Helper()
	var r, h int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r, h = b.depth(); r == ready && h == held {
			return
		}
	}
	b.Fatalf("queue has %d ready and %d held, want %d and %d", r, h, ready, held)
}

// dead lists the dead letters.
func (b *bench) dead(r *rabbitmq.Broker) (ds []broker.DeadLetter) {
	b.Helper()
	err := r.Review(b.soon(), 1000, func(d broker.DeadLetter) broker.Fate {
		ds = append(ds, d)
		return broker.Keep
	})
	if err != nil {
		b.Fatalf("dead letters: %v", err)
	}
	return ds
}

// wantDead checks the dead letters: a reason for each body.
func (b *bench) wantDead(r *rabbitmq.Broker, reasons map[string]string) {
	b.Helper()
	ds := b.dead(r)
	if len(ds) != len(reasons) {
		b.Fatalf("%d dead letters, want %d: %v", len(ds), len(reasons), ds)
	}
	for _, d := range ds {
		if reasons[string(d.Body)] != d.Reason {
			b.Errorf("dead letter %q has reason %q, want %q", d.Body, d.Reason, reasons[string(d.Body)])
		}
	}
}

func (b *bench) is(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// TestSuite: what holds for every broker.
func TestSuite(t *testing.T) { brokertest.Run(t, harness) }

func harness(t *testing.T) *brokertest.Harness {
	t.Parallel() // the cases share nothing but the broker
	b := newBench(t)
	b.conf.Prefetch, b.conf.MaxBody = 300, 2<<20
	proxy, through := b.proxied()
	source := b.open(through)
	direct := b.open()
	return &brokertest.Harness{
		Source:    source,
		Second:    func() broker.Source { return b.open() },
		Publisher: direct,
		MissingQueue: func() broker.Publisher {
			return b.open(func(c *rabbitmq.Config) { c.Queue, c.Declare = "missing", false })
		},
		NoAnswers: []string{b.conf.Queue, b.conf.Queue + ".dead", b.conf.Queue + ".retry.1000"},
		Answers: func() (string, func(context.Context) (broker.Message, error)) {
			answers := b.open(func(c *rabbitmq.Config) { c.Queue = b.queue + "-answers" })
			return b.queue + "-answers", brokertest.Next(answers)
		},
		Close: func(s broker.Source) error { return s.(*rabbitmq.Broker).Close(b.soon()) },
		DeadLetters: func(context.Context) (out []brokertest.DeadLetter, err error) {
			for _, d := range b.dead(direct) {
				out = append(out, brokertest.DeadLetter{Message: d.Message, Reason: d.Reason})
			}
			return out, nil
		},
		Depth: func(context.Context) (ready, held int, err error) {
			ready, held = b.depth()
			return ready, held, nil
		},
		Lapse: func(d broker.Delivery) {
			proxy.Reset()
			b.eventually("the source knows of its loss", func() bool {
				_, err := source.Extend(b.soon(), d, 0)
				return errors.Is(err, broker.ErrNotHeld)
			})
		},
		Cut:            proxy.Reset,
		CountsReceives: true,
		Ordered:        true,
		MaxBody:        b.conf.MaxBody,
		DelayStep:      func(d time.Duration) time.Duration { return rabbitmq.Rung(b.conf, d) },
	}
}
