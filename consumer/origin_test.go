package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// factual is a source whose broker says more of a message.
type factual struct {
	broker.Source
	facts broker.Facts
}

func (s factual) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n)
	for i := range ds {
		ds[i].Facts = s.facts
	}
	return ds, err
}

// What is known of a message reaches its handler and the row; a run from the
// ledger, in another process, sees it too. It is no part of the key or the hash.
func TestOriginReachesHandlerAndRow(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		facts := broker.Facts{Group: "tenant-7", Sent: time.Now().UTC(), First: time.Now().Add(time.Second).UTC(), Trace: "Root=1-5759e988"}
		want := ledger.Origin{Group: "tenant-7", Sent: facts.Sent, First: facts.First, AWSTrace: "Root=1-5759e988",
			Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "rojo=1"}
		var mu sync.Mutex
		var saw []ledger.Origin
		r.before = func(_ context.Context, j *job.Run, _ ask) error {
			mu.Lock()
			defer mu.Unlock()
			saw = append(saw, j.Origin())
			return nil
		}
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		publish := func(attributes map[string]string) {
			t.Helper()
			if err := r.q.Publish(t.Context(), broker.Message{Body: []byte(plain), Attributes: attributes}); err != nil {
				t.Fatal(err)
			}
		}
		publish(map[string]string{"traceparent": want.Trace, "tracestate": want.TraceState})
		a := r.start("a", func(c *consumer.Config) { c.Source = factual{c.Source, facts} })
		time.Sleep(time.Second)
		a.Hurry()
		r.end(a) // unknown, carried by the ledger
		j := r.job("1")
		if j.Origin != want {
			t.Errorf("the row has the origin\n%+v, want\n%+v", j.Origin, want)
		}
		r.prov.script = nil
		b := r.start("b")
		if _, err := r.led.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID},
			ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		publish(map[string]string{"traceparent": "another"})
		time.Sleep(time.Minute)
		r.end(b)
		r.want("1", want2)
		r.avoids(map[string]int{"duplicate_message": 1})
		r.queue(memory.Depth{})
		if !slices.Equal(saw, []ledger.Origin{want, want}) {
			t.Errorf("the handler saw\n%+v, want twice\n%+v", saw, want)
		}
		if j := r.job("1"); j.Origin != want {
			t.Errorf("the row has the origin\n%+v at the end", j.Origin)
		}
	})
}

var want2 = want{state: ledger.Done, runs: 1, bill: 2, attempts: []ledger.AttemptState{ledger.NotSent, ledger.Received}}

// noDead is a source whose broker has no place for dead letters.
type noDead struct {
	broker.Source
	asked *int
}

func (s noDead) DeadLetter(context.Context, broker.Delivery, string) error {
	*s.asked++
	return broker.ErrUnroutable
}

// Without a dead-letter queue a bad message is asked about once for each hand-out, comes back
// rarely, and blocks nothing.
func TestNoDeadLetterQueue(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		if err := r.q.Publish(t.Context(), broker.Message{Body: []byte("not json")}); err != nil {
			t.Fatal(err)
		}
		r.send("1")
		r.cfg.Workers = 1
		asked := 0
		var mu sync.Mutex
		outcomes := map[string]int{}
		var s spy
		n := r.start("a", func(c *consumer.Config) {
			c.Source = noDead{c.Source, &asked}
			s.on(c)
			c.Trace.Delivered = func(_, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			}
		})
		time.Sleep(2 * time.Second)
		r.want("1", done1) // it did not wait behind the bad one
		time.Sleep(29 * time.Minute)
		r.end(n)
		if asked != 2 || outcomes["unroutable"] != 2 || outcomes["acked"] != 1 || len(outcomes) != 2 {
			t.Errorf("asked %d times, outcomes %v: want both messages dealt with, the bad one twice", asked, outcomes)
		}
		r.queue(memory.Depth{Delayed: 1})
	})
}

// lateAck acknowledges what its broker has taken back already.
type lateAck struct{ broker.Source }

func (s lateAck) Ack(ctx context.Context, d broker.Delivery) error {
	if err := s.Source.Ack(ctx, d); err != nil {
		return err
	}
	return broker.ErrNotHeld
}

// A late ack is told so, and is not tried again.
func TestALateAckIsCountedAsLost(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var mu sync.Mutex
		var outcomes []string
		r.send("1")
		n := r.start("a", func(c *consumer.Config) {
			c.Source = lateAck{c.Source}
			c.Trace.Delivered = func(_, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, outcome)
			}
		})
		time.Sleep(2 * time.Second)
		r.end(n)
		r.want("1", done1)
		r.queue(memory.Depth{})
		if strings.Join(outcomes, " ") != "lost" {
			t.Errorf("outcomes %v", outcomes)
		}
	})
}

// An extension that arrives when its delivery is settled already has lost nothing.
func TestAnExtensionThatCrossesTheAck(t *testing.T) {
	bubble(t, memory.Options{Visibility: 3 * time.Second}, func(r *rig) {
		var mu sync.Mutex
		var outcomes, extensions []string
		r.prov.script = func(string, int) (time.Duration, error) { return 1500 * time.Millisecond, nil }
		r.send("1")
		n := r.start("a", func(c *consumer.Config) {
			c.Source = brokertest.SlowExtend{Source: c.Source, By: time.Second}
			c.Trace.Delivered = func(_, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, outcome)
			}
			c.Trace.Extended = func(outcome string) {
				mu.Lock()
				defer mu.Unlock()
				extensions = append(extensions, outcome)
			}
		})
		time.Sleep(10 * time.Second)
		r.end(n)
		r.want("1", done1)
		r.queue(memory.Depth{})
		if strings.Join(outcomes, " ") != "acked" || len(extensions) > 0 {
			t.Errorf("deliveries %v, extensions %v: want one that was acknowledged", outcomes, extensions)
		}
	})
}
