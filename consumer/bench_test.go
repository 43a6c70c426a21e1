package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// paper is the message of the benchmarks, of 1 KB, with the fields that most have.
type paper struct {
	Tenant string `json:"tenant"`
	Doc    string `json:"doc"`
	Text   string `json:"text"`
}

func (p paper) JobKey() job.Key { return job.K(p.Tenant, "paper", p.Doc) }

func papered(doc int) []byte {
	body, err := json.Marshal(paper{"acme", fmt.Sprint(doc), strings.Repeat("lorem ipsum ", 80)})
	if err != nil {
		panic(err)
	}
	return body
}

// belt hands deliveries out until there are enough of them, and closes done when all are acknowledged.
type belt struct {
	broker.Source
	bodies func(n int) []byte
	left   int
	given  int
	acked  atomic.Int64
	all    int64
	done   chan struct{}
}

// Receive hands out eight at most at a time, as a broker's burst may be.
func (s *belt) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if s.left == 0 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	ds := make([]broker.Delivery, min(n, s.left, 8))
	for i := range ds {
		s.given++
		ds[i] = broker.Delivery{Message: broker.Message{ID: fmt.Sprint(s.given), Body: s.bodies(s.given), Attributes: map[string]string{consumer.Attribute: "paper", "published": "1764547200000000000"}}, Receives: 1}
	}
	s.left -= len(ds)
	return ds, nil
}

func (s *belt) Ack(context.Context, broker.Delivery) error {
	if s.acked.Add(1) == s.all {
		close(s.done)
	}
	return nil
}

// BenchmarkDelivery is what a delivery takes of the worker, the ledger in memory included: one that is answered from the ledger, and
// one that is a job of one call.
func BenchmarkDelivery(b *testing.B) {
	call := job.Call[paper, string]{Name: "read", Routes: []job.Route[paper, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, in paper) (string, error) { return in.Text, a.Sent(ctx) }}}}
	var reg job.Registry
	job.Register(&reg, job.Def[paper, string]{Name: "paper", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, in paper) (string, error) { return call.Run(ctx, j, in) }})
	pass := func(b *testing.B, led *memledger.Ledger, n int, bodies func(int) []byte) {
		s := &belt{bodies: bodies, left: n, all: int64(n), done: make(chan struct{})}
		c, err := consumer.New(consumer.Config{Source: s, Store: led, Handlers: &reg, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		<-s.done
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
	b.Run("duplicate", func(b *testing.B) {
		led, body := memledger.New(), papered(1)
		pass(b, led, 1, func(int) []byte { return body })
		b.ReportAllocs()
		b.ResetTimer()
		pass(b, led, b.N, func(int) []byte { return body })
	})
	b.Run("job", func(b *testing.B) {
		bodies := make([][]byte, b.N+1)
		for i := range bodies {
			bodies[i] = papered(i)
		}
		b.ReportAllocs()
		b.ResetTimer()
		pass(b, memledger.New(), b.N, func(n int) []byte { return bodies[n] })
	})
}
