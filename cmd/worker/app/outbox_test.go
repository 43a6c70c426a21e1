package app

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// A worker with nothing configured died when a result was on record, and before its messages were anywhere else. The
// next one does what they ask for, and what they ask for outlives it too; what nobody can do is set aside.
func TestOutboxOfAnEmbeddedWorker(t *testing.T) {
	w := plain(t)
	answer := `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	ms := w.models(modelserver.Options{Generate: func(modelserver.Request) string { return answer }})
	w.must("", "migrate", "up")
	ctx := t.Context()
	l, err := sqlite.Open(ctx, "paidonce.db")
	if err != nil {
		t.Fatal(err)
	}
	id, err := l.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Claim(ctx, ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:asker:1"}, Action: "asker", Carrier: ledger.CarriedByBroker, Worker: id, Token: ledger.NewID(), MaxRun: time.Hour})
	if err == nil {
		err = l.Complete(ctx, c.Lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"),
			Messages: []ledger.MessageAsk{{Action: "nobody's", Body: []byte("{}")}, {Action: "invoice.extract", Body: []byte(invoiceDoc)}}})
	}
	if err == nil {
		err = l.Leave(ctx, id)
	}
	l.Close()
	if err == nil {
		err = sqlite.Exec(ctx, "paidonce.db", "update paidonce_outbox set next_at = 0")
	}
	if err != nil {
		t.Fatal(err)
	}
	r := w.start()
	w.until(invoiceKey, "done")
	r.stop()
	if n := len(ms.Bill()); n != 1 {
		t.Errorf("%d calls on the bill", n)
	}
	l, err = sqlite.Open(ctx, "paidonce.db")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := l.CountMessages(ctx); n != 0 || err != nil {
		t.Errorf("%d messages are left (%v)", n, err)
	}
}
