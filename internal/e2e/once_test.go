package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// Three processes, three messages for each key: one line on the bill for each, and
// every other delivery is answered from the ledger.
func TestDuplicatesArePaidOnce(t *testing.T) {
	OnEach(t, func(t *testing.T, b Broker) {
		const times = 3
		keys := b.Fit(300, times)
		w := NewWorld(t, Options{Broker: b, Visibility: time.Minute}) // on a busy machine too nothing comes twice that was sent once
		w.Submit(times, Docs(keys)...)
		for i := range 3 {
			w.Start(fmt.Sprint(i))
		}
		w.UntilState(ledger.Done)
		w.UntilQuiet()
		if n := w.Sum("paidonce_calls_avoided_total"); n != float64(keys*(times-1)) {
			t.Errorf("%v calls avoided, want %d", n, keys*(times-1))
		}
		w.Leave(w.procs...)
		w.Check(Expect{})
		r := w.Report("action").Total // all of them, since nobody was killed
		if want := *r.Spent * (times - 1); r.Avoided != keys*(times-1) || *r.Saved != want {
			t.Errorf("reported %d avoided (%v) and %s USD saved, want %d and %s", r.Avoided, r.AvoidedBy, *r.Saved, keys*(times-1), want)
		}
	})
}

// Case 13: a call lasts three times as long as SQS hides its message. The worker keeps extending
// it, so that it is handed out once, though two more would be allowed; at its start it warns
// that three are few for the windows that are set. It runs alone: an extension that is late is
// its failure.
func TestCallOutlastsVisibility(t *testing.T) {
	const visibility = 5 * time.Second
	w := NewWorld(t, Options{Broker: SQS, Visibility: visibility, MaxReceives: 3,
		Models: modelserver.Options{Latency: 3 * visibility}, Routes: map[string]string{summarize.Name: "openai 60s"}, SettleWindow: 2 * time.Minute, Hold: 2 * time.Minute})
	docs := []Doc{Ticket("1"), Ticket("2"), Ticket("3")}
	w.Submit(1, docs...)
	p := w.Start("slow")
	p.Says(`"msg":"PO543 queue [^"]* sets a message aside after 3 receives`)
	idle := w.Start("idle") // would get what comes back
	w.UntilState(ledger.Done)
	w.UntilQuiet()
	for _, d := range docs {
		if j := w.Job(d.Key); j.Receives != 1 || j.Runs != 1 {
			t.Errorf("%s was received %d times and ran %d times\n%s", d.Key, j.Receives, j.Runs, story(j))
		}
	}
	if n := w.Sum("paidonce_deliveries_total"); n != float64(len(docs)) {
		t.Errorf("%v deliveries of %d messages", n, len(docs))
	}
	if n := w.Sum("paidonce_visibility_extensions_total", `result="ok"`); n < float64(3*len(docs)) {
		t.Errorf("%v extensions of %d deliveries, each held for three visibility timeouts", n, len(docs))
	}
	w.Leave(p, idle)
	w.Check(Expect{})
}
