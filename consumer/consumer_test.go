package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

func TestOneJobOneCall(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.send("1")
		n := r.start("a")
		time.Sleep(time.Minute)
		r.end(n)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{})
	})
}

// Three messages a key over three workers: one call, and every other delivery
// gets the saved result.
func TestDuplicatesAreAvoided(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		docs := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
		for range 3 {
			r.send(docs...)
		}
		ns := []*node{r.start("a"), r.start("b"), r.start("c")}
		time.Sleep(5 * time.Minute)
		r.end(ns...)
		for _, d := range docs {
			r.want(d, done1)
		}
		r.queue(memory.Depth{})
		total := 0
		for cause, n := range r.avoided {
			total += n
			if cause == "ack_lost" {
				t.Errorf("no ack was lost, yet %d count as that", n)
			}
		}
		if total != 2*len(docs) {
			t.Errorf("%d avoided (%v), want %d", total, r.avoided, 2*len(docs))
		}
	})
}

// Cases 13, 15 and 41: a call of many visibility timeouts and leases, with a second worker idle beside
// it: extended and renewed, never handed out again.
func TestLongCallIsKept(t *testing.T) {
	bubble(t, memory.Options{Visibility: 20 * time.Second, MaxReceives: 3}, func(r *rig) {
		r.call.Routes[0].Timeout = 3 * time.Hour
		r.cfg.SettleWindow, r.cfg.Hold, r.cfg.MaxRun = 4*time.Hour, 4*time.Hour, 5*time.Hour
		r.prov.script = func(string, int) (time.Duration, error) { return 2 * time.Hour, nil }
		r.send("1")
		var s, beside spy
		a, b := r.start("a", s.on), r.start("b", beside.on)
		time.Sleep(3 * time.Hour)
		r.end(a, b)
		r.want("1", done1)
		r.queue(memory.Depth{})
		if n := len(s.handed) + len(beside.handed); n != 1 {
			t.Errorf("the message was handed out %d times", n)
		}
		if j := r.job("1"); j.Receives != 1 || j.Fence != 1 {
			t.Errorf("receives %d, fence %d: the delivery or the lease was lost on the way", j.Receives, j.Fence)
		}
	})
}

// Case 20: two workers, one key, a call of a minute, a receive limit of 3: duplicates that
// find the job busy must not use up the receives.
func TestBusyDuplicatesDoNotDie(t *testing.T) {
	bubble(t, memory.Options{Visibility: time.Minute, MaxReceives: 3}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		r.send("1", "1")
		a, b := r.start("a"), r.start("b")
		time.Sleep(10 * time.Minute)
		r.end(a, b)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{"duplicate_message": 1})
	})
}

func TestAckBusyAbsorbsDuplicates(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.AckBusy = true
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		r.send("1", "1", "1")
		a := r.start("a")
		time.Sleep(10 * time.Second)
		if d := r.q.Depth(); d != (memory.Depth{Held: 1}) {
			t.Errorf("the queue holds %+v while the job runs, want one held", d)
		}
		time.Sleep(5 * time.Minute)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// The job's message may be given back by a worker whose claim was on record without its knowing: it was handed out
// before although the hand-out does not count, and is not absorbed.
func TestAckBusyKeepsWhatWasGivenBackUnused(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.AckBusy = true
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		r.send("1")
		ds, err := r.q.Receive(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ds[0].Receives--
		if err := r.q.Nack(t.Context(), ds[0], 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(20 * time.Second)
		if d := r.q.Depth(); d.Ready+d.Held+d.Delayed != 2 {
			t.Errorf("the queue holds %+v while the job runs, want the message that runs and the one that was given back", d)
		}
		time.Sleep(30 * time.Minute)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// A message whose visibility lapses while its run lives is the only one that brings its job back: it is no
// duplicate to absorb, since the run may end as one to be repeated.
func TestAckBusyKeepsTheJobsOwnMessage(t *testing.T) {
	bubble(t, sqs(0), func(r *rig) {
		r.cfg.AckBusy, r.cfg.Grace = true, 100*time.Hour
		r.before = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() > 1 {
				return nil
			}
			time.Sleep(4 * time.Minute)
			return errors.New("again")
		}
		var s spy
		s.deaf = true
		r.send("1")
		a := r.start("a", s.on)
		time.Sleep(time.Second)
		b := r.start("b")
		time.Sleep(2 * time.Minute)
		if j := r.job("1"); j.State != ledger.Running || j.Carrier != ledger.CarriedByBroker || r.q.Depth() == (memory.Depth{}) {
			t.Errorf("the job is %s, carried by %s, and the queue holds %+v: nobody would bring it back", j.State, j.Carrier, r.q.Depth())
		}
		time.Sleep(30 * time.Minute)
		r.end(a, b)
		w := done1
		w.runs = 2
		r.want("1", w)
		r.queue(memory.Depth{})
	})
}

// The worker dies after the provider has the request: the job is unknown and is held for ever,
// then a person says what happened.
func TestKilledInACallIsUnknown(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(10 * time.Second)
		a.kill()
		b := r.start("b")
		time.Sleep(48 * time.Hour)
		r.want("1", want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}})
		r.queue(memory.Depth{})

		j := r.job("1")
		_, err := r.led.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID}, ledger.Evidence{
			State: ledger.Received, By: ledger.ByPerson, Who: "ann", Reason: "found in the provider's log",
			Response: &ledger.Response{Codec: "json", Body: []byte(`"answer to 1"`)}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
	})
}

// Killed before the call was sent: nothing is unknown and the next worker runs it.
func TestKilledBeforeTheCallRunsAgain(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(10 * time.Second)
		a.kill()
		b := r.start("b")
		time.Sleep(10 * time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
	})
}

// Killed after the answer was captured and before the result: the next run is given
// the answer.
func TestKilledAfterTheAnswerUsesIt(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.after = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(10 * time.Second)
		a.kill()
		b := r.start("b")
		time.Sleep(10 * time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
	})
}

func TestLostAckIsAnsweredFromTheLedger(t *testing.T) {
	bubble(t, memory.Options{Visibility: time.Minute}, func(r *rig) {
		lost := 0
		src := ackLoser{r.q.Source(), func() bool { lost++; return lost <= 2 }}
		r.send("1")
		c := r.start("a", func(cfg *consumer.Config) { cfg.Source = src })
		time.Sleep(10 * time.Minute)
		r.end(c)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{"ack_lost": 2})
	})
}

// ackLoser says that it acknowledged, and the broker never hears it.
type ackLoser struct {
	broker.Source
	lose func() bool
}

func (s ackLoser) Ack(ctx context.Context, d broker.Delivery) error {
	if s.lose() {
		return nil
	}
	return s.Source.Ack(ctx, d)
}

// Case 6: a body that nobody can read is set aside with its reason, and leaves no row.
func TestBadMessagesAreDeadLettered(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		deep := strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)
		attr := map[string]string{consumer.Attribute: "ask"}
		for _, m := range []broker.Message{
			{Body: []byte("not json")},
			{Body: nil},
			{Body: []byte(`{"job":"ask"}`)},
			{Body: []byte(`{"job":"other","input":{}}`)},
			{Body: []byte(`{"Doc":"1"}`), Attributes: attr},
			{Body: []byte(`[1]`), Attributes: attr},
			{Body: []byte("{\"Tenant\":\"\xff\"}"), Attributes: attr},
			{Body: []byte(deep), Attributes: attr},
			{Body: make([]byte, 2<<20), Attributes: attr},
			{Body: []byte(`{"Tenant":"acme","Doc":"2026-11-29T10:00:00Z"}`), Attributes: attr},
		} {
			if err := r.q.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.send("good")
		r.cfg.Workers = 1 // one after the other, and the worker goes on
		n := r.start("a")
		time.Sleep(time.Minute)
		r.end(n)
		r.want("good", done1)
		r.queue(memory.Depth{}, "PO401", "PO401", "PO409", "PO408", "PO404", "PO403", "PO402", "PO403", "PO407", "PO404")
		rows := 0
		for _, err := range r.led.Jobs(t.Context(), ledger.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			rows++
		}
		if rows != 1 {
			t.Errorf("%d rows, want that of the good message alone", rows)
		}
	})
}

// Case 51: what is volatile in an input, a clock for one, is not in its hash: no second call. What is not volatile makes it another input.
func TestSameKeyOtherInputIsRefused(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.publish(ask{Tenant: "acme", Doc: "1", Note: "first"})
		n := r.start("a")
		time.Sleep(time.Minute)
		before := r.job("1")
		r.publish(ask{Tenant: "acme", Doc: "1", Note: "second"})
		r.publish(ask{Tenant: "acme", Doc: "1", Note: "first", Pad: "volatile"})
		time.Sleep(time.Minute)
		r.end(n)
		r.queue(memory.Depth{}, "PO406")
		reason := r.q.DeadLetters()[0].Reason
		if after := r.job("1"); after.Fence != before.Fence || after.UpdatedAt != before.UpdatedAt || !strings.Contains(reason, before.InputHash.String()) {
			t.Errorf("the first job was touched, or the reason %q does not show its hash", reason)
		}
		r.want("1", done1)
	})
}

// Case 47: each kind of failure has one way to its end.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(run int64) error
		want  want
	}{
		{"permanent", func(int64) error { return job.Fail(errors.New("no")) },
			want{state: ledger.Failed, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "permanent"}},
		{"retryable twice", func(n int64) error {
			if n < 3 {
				return errors.New("not yet")
			}
			return nil
		}, want{state: ledger.Done, runs: 3, bill: 1, attempts: []ledger.AttemptState{ledger.Received}}},
		{"for ever", func(int64) error { return errors.New("never") },
			want{state: ledger.Failed, runs: 10, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "exhausted"}},
		{"poison", func(int64) error { panic("boom") },
			want{state: ledger.Failed, runs: 3, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "poison"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.after = func(context.Context, *job.Run, ask) error { return c.after(r.runs.Load()) }
				r.send("1")
				n := r.start("a")
				time.Sleep(24 * time.Hour)
				r.send("1") // a later delivery gets the stored end
				time.Sleep(time.Minute)
				r.end(n)
				r.want("1", c.want)
				r.queue(memory.Depth{})
			})
		})
	}
}
