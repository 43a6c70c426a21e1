package job

import (
	"context"
	"net/http"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// Worker is what all runs of one worker have in common. NewWorker makes one.
type Worker struct {
	Ledger ledger.Ledger // required
	Who    string        // the worker, for the history
	// Publishes says that the messages a handler asks for are sent by somebody. false: asking is refused.
	Publishes bool
	// Traffic is what this process knows of its routes. nil: of these runs alone.
	Traffic *Traffic

	// Paid is what paid calls live under: it ends when the worker's drain time is
	// over, and not when the lease is lost, since a call under way is paid either
	// way and its answer is wanted. Required.
	Paid context.Context
	// SettleTimeout bounds one try at writing what came back; such a write is tried
	// until it goes through or Paid ends. 0: 10 s.
	SettleTimeout time.Duration
	// DrainLeft says how much drain time is left, and whether the worker drains at
	// all. nil: it never does.
	DrainLeft func() (time.Duration, bool)
	// Wire is the base of guarded requests: of it proxies, dialers, TLS settings,
	// DisableCompression and MaxResponseHeaderBytes count. Times are limited by the
	// route's timeout. nil: Go's defaults.
	Wire *http.Transport
	// Price is what an answered call cost, nil when nobody knows. nil: nobody ever does.
	Price func(prices.Call) *ledger.Nano
	// Saw is told of every finished attempt and every answer played back, and of which job it is. nil: nobody.
	Saw func(action string, s Seen)
}

// NewWorker fills in the defaults. Like NewRun it is for the consumer and for test kits.
func NewWorker(w Worker) *Worker {
	if w.SettleTimeout <= 0 {
		w.SettleTimeout = 10 * time.Second
	}
	if w.DrainLeft == nil {
		w.DrainLeft = func() (time.Duration, bool) { return 0, false }
	}
	if w.Traffic == nil {
		w.Traffic = NewTraffic()
	}
	if w.Price == nil {
		w.Price = func(prices.Call) *ledger.Nano { return nil }
	}
	if w.Saw == nil {
		w.Saw = func(string, Seen) {}
	}
	return &w
}
