package consumer_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/ledger"
)

// More jobs wait for a handler that is gone than one look lists; a job behind them
// is run all the same.
func TestForeignJobsDoNotHideOthers(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		seed := func(k ledger.Key, action string, hash ledger.Hash, input []byte) {
			w, err := r.led.Join(t.Context(), ledger.Worker{ID: "seed", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			c, err := r.led.Claim(t.Context(), ledger.Request{Key: k, Action: action, InputHash: hash, Input: input,
				Carrier: ledger.CarriedByLedger, Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
			if err != nil || c.Verdict != ledger.Run {
				t.Fatalf("seeding %s: %v %v", k, c.Verdict, err)
			}
			if _, err := r.led.Release(t.Context(), c.Lease, ledger.Outcome{GiveBack: true}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 250 {
			seed(ledger.Key{Tenant: "acme", Text: fmt.Sprintf("acme:gone:%d:v1", i)}, "gone", ledger.Hash{}, []byte("{}"))
		}
		body, err := json.Marshal(ask{Tenant: "acme", Doc: "1"})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := r.handlers().Lookup("ask")
		in, err := h.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		seed(in.Key.Ledger(), "ask", in.Hash, in.Body)
		a := r.start("a")
		time.Sleep(5 * time.Minute)
		r.want("1", done1)
		r.end(a)
	})
}
