package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// alive counts the handlers that are in user code.
type alive struct {
	mu        sync.Mutex
	now, most int
}

// in counts one, until its result is called.
func (a *alive) in() (out func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	a.most = max(a.most, a.now)
	return func() { a.mu.Lock(); a.now--; a.mu.Unlock() }
}

// deaf makes the call's route go on for d after its gate, whatever becomes of its context.
func (r *rig) deaf(d time.Duration) {
	r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		r.prov.mu.Lock()
		r.prov.bill[in.Doc]++
		r.prov.mu.Unlock()
		time.Sleep(d)
		return "answer to " + in.Doc, nil
	}
}

// Case 1: a handler that ignores its context, past the deadline of its run, keeps its slot and its message
// until it returns: nothing is begun beside it. With a call open its job is unknown, and the answer counts.
func TestADeafHandlerKeepsItsSlot(t *testing.T) {
	for _, c := range []struct {
		name   string
		inCall bool
		during want // past the deadline
		after  want
	}{
		{"before its call", false, want{state: ledger.Running, runs: 1},
			want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}}},
		{"in its call", true, want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}},
			want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memory.Options{Visibility: time.Minute, MaxReceives: 3}, func(r *rig) {
				r.cfg.Workers, r.cfg.MaxRun = 1, 10*time.Minute
				if c.inCall {
					r.deaf(time.Hour)
				}
				var handlers alive
				r.before = func(context.Context, *job.Run, ask) error {
					if r.runs.Load() == 1 && !c.inCall {
						defer handlers.in()()
						time.Sleep(time.Hour)
					}
					return nil
				}
				do := r.call.Routes[0].Do
				r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
					defer handlers.in()()
					return do(ctx, a, in)
				}
				r.send("1")
				a := r.start("a")
				time.Sleep(time.Second)
				r.send("2")
				time.Sleep(30 * time.Minute)
				r.want("1", c.during)
				r.queue(memory.Depth{Held: 1, Ready: 1})
				if n := r.runs.Load(); n != 1 {
					t.Errorf("%d runs were begun beside a handler that has the one slot", n)
				}
				time.Sleep(6 * time.Hour)
				r.end(a)
				r.want("1", c.after)
				r.want("2", done1)
				r.queue(memory.Depth{})
				if handlers.most != 1 {
					t.Errorf("%d handlers at once, of one slot", handlers.most)
				}
			})
		})
	}
}

// Case 28: so does one that is deaf in its call: that is on record as open when the worker ends.
func TestDrainAbandonsAWedgedCall(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.deaf(time.Hour)
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Second)
		began := time.Now()
		r.end(a)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the drain took %s of 25s", took)
		}
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "drain"})
		r.queue(memory.Depth{})
		time.Sleep(2 * time.Hour) // the handler ends at last; it sends nothing
		if n := r.prov.billed("1"); n != 1 {
			t.Errorf("billed %d times", n)
		}
	})
}

// Case 4: handing a message to its handler panics. The process lives on, the message is given back and runs, and the
// log names it.
func TestPanicOnTheWayToTheHandler(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		asked := 0
		r.cfg.Workers, r.cfg.Resolve = 1, func(context.Context, consumer.Pointer) ([]byte, error) {
			if asked++; asked == 1 {
				panic("boom")
			}
			return []byte(plain), nil
		}
		if err := r.q.Publish(t.Context(), broker.Message{Body: []byte(s3)}); err != nil {
			t.Fatal(err)
		}
		var s spy
		var log bytes.Buffer
		a := r.start("a", s.on, func(c *consumer.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(time.Second)
		r.send("2")
		time.Sleep(time.Minute)
		r.end(a)
		r.want("1", done1)
		r.want("2", done1)
		r.queue(memory.Depth{})
		if len(s.given()) != 1 {
			t.Errorf("given back for %v, want once", s.given())
		}
		if line := `msg="processing panicked" worker=a message_id=` + s.first().ID + " panic=boom"; strings.Count(log.String(), line) != 1 {
			t.Errorf("the log does not say once %q:\n%s", line, &log)
		}
	})
}

// Case 31: workers are replaced one after the other under load, some in order, some by a kill. Every key ends, or waits for
// evidence of its one call; none is paid twice.
func TestRollingRestarts(t *testing.T) {
	bubble(t, memory.Options{Visibility: 20 * time.Second}, func(r *rig) {
		const jobs, replaced = 300, 24
		r.prov.script = func(string, int) (time.Duration, error) { return rand.N(40 * time.Second), nil }
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error { time.Sleep(time.Second); return ctx.Err() }
		var docs []string
		for i := range jobs {
			docs = append(docs, fmt.Sprint(i))
		}
		r.send(docs...)
		r.send(docs[:jobs/3]...)
		ns := []*node{r.start("a0"), r.start("b0"), r.start("c0")}
		for i := range replaced {
			time.Sleep(20 * time.Second)
			old := i % len(ns)
			if i%2 == 0 {
				ns[old].kill()
			} else {
				r.end(ns[old])
			}
			ns[old] = r.start(fmt.Sprintf("%c%d", 'a'+old, i+1))
		}
		time.Sleep(6 * time.Hour)
		r.end(ns...)
		ends := map[ledger.State]int{}
		for _, d := range docs {
			j := r.job(d)
			ends[j.State]++
			if n := r.prov.billed(d); n != 1 || len(j.Attempts) != 1 || j.State == ledger.Unknown && j.OpenCalls != 1 {
				t.Errorf("job %s is %s, billed %d times, with %d attempts, %d open", d, j.State, n, len(j.Attempts), j.OpenCalls)
			}
		}
		if ends[ledger.Done]+ends[ledger.Unknown] != jobs || ends[ledger.Done] == 0 || ends[ledger.Unknown] == 0 {
			t.Errorf("the jobs ended as %v, want done, or unknown", ends)
		}
		r.queue(memory.Depth{})
	})
}

// Case 35: the message of a job waits in the queue while every window of its first run ends: the lease, the run's deadline
// and the worker's life. It runs when it is due.
func TestWindowsEndWhileAMessageWaits(t *testing.T) {
	bubble(t, memory.Options{Visibility: 20 * time.Second}, func(r *rig) {
		r.cfg.MaxRun, r.cfg.Grace = 10*time.Minute, 12*time.Hour // the ledger does not help
		r.after = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() == 1 {
				return job.RetryIn(3*time.Hour, errors.New("not yet"))
			}
			return nil
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Minute)
		r.queue(memory.Depth{Delayed: 1})
		a.kill()
		time.Sleep(2 * time.Hour)
		b := r.start("b")
		time.Sleep(50 * time.Minute)
		r.want("1", want{state: ledger.Ready, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "retry"})
		time.Sleep(2 * time.Hour)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
		r.avoids(map[string]int{})
	})
}
