package consumer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/ledger"
)

// Case 68: more jobs wait for a handler that is gone than one look lists; a job behind them
// is run all the same, and the log says once that they wait.
func TestForeignJobsDoNotHideOthers(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		for i := range 2500 {
			r.seed(ledger.Key{Tenant: "acme", Text: fmt.Sprintf("acme:gone:%d:v1", i)}, "gone", ledger.Hash{}, []byte("{}"))
		}
		r.carry("1")
		var log bytes.Buffer
		a := r.start("a", func(c *consumer.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(5 * time.Minute)
		r.want("1", done1)
		r.end(a)
		if n := strings.Count(log.String(), `"no handler for a job that waits" worker=a job=gone registered=[`); n != 1 {
			r.Errorf("the log says %d times that no handler is there:\n%s", n, &log)
		}
	})
}

// The ledger carries the job, and the reply to its claim is lost for good: no delivery
// will ask again, but the worker that may own it does.
func TestLostClaimOfACarriedJob(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := &outage{Store: r.led, lossy: true}
		o.until.Store(time.Now().Add(3 * time.Minute).UnixNano())
		r.carry("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = o })
		time.Sleep(20 * time.Minute)
		r.want("1", done1)
		r.end(a)
	})
}

// What waits when a worker starts is begun at once, and what a look leaves over for want of
// slots does not wait for a tick.
func TestWaitingJobsDoNotWaitForATick(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const jobs, slots = 9, 3
		for i := range jobs {
			r.carry(fmt.Sprint(i))
		}
		a := r.start("a", func(c *consumer.Config) { c.Workers, c.Tick = slots, time.Hour })
		time.Sleep(time.Minute)
		for i := range jobs {
			r.want(fmt.Sprint(i), done1)
		}
		r.end(a)
	})
}

// seed makes a job that is ready and carried by the ledger.
func (r *rig) seed(k ledger.Key, action string, hash ledger.Hash, input []byte) {
	r.Helper()
	w, err := r.led.Join(r.Context(), ledger.Worker{ID: "seed", TTL: time.Minute})
	if err != nil {
		r.Fatal(err)
	}
	c, err := r.led.Claim(r.Context(), ledger.Request{Key: k, Action: action, InputHash: hash, Input: input,
		Carrier: ledger.CarriedByLedger, Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		r.Fatalf("seeding %s: %v %v", k, c.Verdict, err)
	}
	if _, err := r.led.Release(r.Context(), c.Lease, ledger.Outcome{GiveBack: true}); err != nil {
		r.Fatal(err)
	}
}

// carry seeds the job of a document.
func (r *rig) carry(doc string) {
	r.Helper()
	body, err := json.Marshal(ask{Tenant: "acme", Doc: doc})
	if err != nil {
		r.Fatal(err)
	}
	h, _ := r.handlers().Lookup("ask")
	in, err := h.Decode(body)
	if err != nil {
		r.Fatal(err)
	}
	r.seed(in.Key.Ledger(), "ask", in.Hash, in.Body)
}
