package consumer_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sealed"
)

// sealedBy gives a worker encryption keys, each of one byte and named after it.
func sealedBy(t *testing.T, ids ...byte) func(*consumer.Config) {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&text, "k%d:%s\n", id, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{id}, sealed.KeySize)))
	}
	keys, err := sealed.ParseKeys(text.String())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *consumer.Config) { c.Store = sealed.Wrap(c.Store, keys) }
}

// A worker that has not got the key of a saved answer gives the job back, however often it meets it, and
// whatever the handler makes of the error; no run is counted. Who has the key gets the answer and pays nothing.
func TestAnswerSealedWithAnotherKey(t *testing.T) {
	for name, swallows := range map[string]bool{"the handler says so": false, "the handler swallows it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{MaxReceives: 1000}, func(r *rig) {
				r.after = func(ctx context.Context, _ *job.Run, _ ask) error {
					if r.runs.Load() == 1 {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				r.send("1")
				a := r.start("a", sealedBy(t, 2, 1))
				time.Sleep(10 * time.Second)
				a.kill()
				b := r.start("b", sealedBy(t, 1), func(c *consumer.Config) {
					if swallows {
						c.Handlers = swallowing(r)
					}
				})
				time.Sleep(24 * time.Hour)
				if n := r.runs.Load(); n < 20 || n > 24*60+1 {
					t.Errorf("%d runs in a day", n)
				}
				r.want("1", want{state: ledger.Ready, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "encryption_key"})
				r.end(b)
				c := r.start("c", sealedBy(t, 3, 2))
				time.Sleep(10 * time.Minute)
				r.end(c)
				r.queue(memory.Depth{})
				var read consumer.Config
				read.Store = r.led
				sealedBy(t, 3)(&read)
				j, err := read.Store.Job(t.Context(), key("1"))
				if err != nil || j.State != ledger.Done || j.Runs != 2 || r.prov.billed("1") != 1 || string(j.Result.Body) != `"answer to 1"` {
					t.Errorf("%v; the job is %s after %d runs, and was paid %d times", err, j.State, j.Runs, r.prov.billed("1"))
				}
			})
		})
	}
}

// swallowing makes a result of its own where a call has an error.
func swallowing(r *rig) *job.Registry {
	reg := new(job.Registry)
	job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(r.call),
		Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
			r.runs.Add(1)
			if out, err := r.call.Run(ctx, j, in); !errors.Is(err, sealed.ErrKey) {
				return out, err
			}
			return "made up", nil
		}})
	return reg
}

// A run that paid for something before it met an answer that it cannot read counts: what it paid for is not made
// again without end.
func TestPaidRunsWithoutAKeyCount(t *testing.T) {
	bubble(t, memory.Options{MaxReceives: 1000}, func(r *rig) {
		var paid atomic.Int64
		poll := job.Call[ask, string]{Name: "poll", Memo: job.EachCall, Routes: []job.Route[ask, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, _ ask) (string, error) {
				if err := a.Sent(ctx); err != nil {
					return "", err
				}
				return fmt.Sprint(paid.Add(1)), nil
			}}}}
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(poll, r.call),
			Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
				if _, err := poll.Run(ctx, j, in); err != nil {
					return "", err
				}
				out, err := r.call.Run(ctx, j, in)
				if paid.Load() == 1 {
					<-ctx.Done()
				}
				return out, err
			}})
		with := func(c *consumer.Config) { c.Handlers, c.MaxRuns = reg, 3 }
		r.send("1")
		a := r.start("a", sealedBy(t, 2, 1), with)
		time.Sleep(10 * time.Second)
		a.kill()
		b := r.start("b", sealedBy(t, 1), with)
		time.Sleep(24 * time.Hour)
		r.end(b)
		if n, j := paid.Load(), r.job("1"); n > 3 || j.State != ledger.Failed || j.Error.Class != "exhausted" {
			t.Errorf("a job that may run 3 times paid %d times in a day and is %s, %+v", n, j.State, j.Error)
		}
	})
}
