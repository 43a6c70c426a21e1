package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

const drainOver = "drain time is over"

// The same on SQS.
func TestDrainOnSQS(t *testing.T) {
	t.Parallel()
	for name, proof := range map[string]func(*testing.T, Broker){"finishes": drainFinishesCalls, "records": drainRecordsCalls, "flushes": leavingFlushesAcks} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proof(t, SQS)
		})
	}
}

// underWay is a worker with three calls on the wire.
func underWay(t *testing.T, b Broker, drain time.Duration) (*World, *Proc, []Doc) {
	t.Helper()
	w := NewWorld(t, Options{Broker: b, Drain: drain, Routes: map[string]string{summarize.Name: "anthropic 60s"},
		SettleWindow: time.Minute, Hold: time.Minute})
	docs := []Doc{Ticket("1"), Ticket("2"), Ticket("3")}
	for _, d := range docs {
		w.Models.Script(d.Key, modelserver.Fault{Hold: true})
	}
	w.Submit(1, docs...)
	p := w.Start("leaving")
	for _, d := range docs {
		w.Billed(d.Key)
	}
	p.Term()
	p.Says(`"msg":"draining"`)
	return w, p, docs
}

// Cases 30 and 76: calls that end within the drain time are finished.
func TestDrainFinishesCalls(t *testing.T) { t.Parallel(); drainFinishesCalls(t, RabbitMQ) }

func drainFinishesCalls(t *testing.T, b Broker) {
	w, p, docs := underWay(t, b, time.Minute)
	for _, d := range docs {
		w.Models.Release(d.Key)
	}
	p.Left()
	if strings.Contains(p.log.String(), drainOver) {
		t.Error("the drain was not over when the calls ended")
	}
	if d := w.Depth(); d != (Depth{}) {
		t.Errorf("after the worker left the queues hold %+v", d)
	}
	w.Check(Expect{})
}

// Longer ones are on record as unknown when the process ends, and nobody sends them
// again.
func TestDrainRecordsCalls(t *testing.T) { t.Parallel(); drainRecordsCalls(t, RabbitMQ) }

func drainRecordsCalls(t *testing.T, b Broker) {
	w, p, docs := underWay(t, b, 2*time.Second)
	p.Left()
	if !strings.Contains(p.log.String(), drainOver) {
		t.Error("the drain was over before the calls ended, and the worker does not say so")
	}
	if d := w.Depth(); d != (Depth{}) {
		t.Errorf("after the worker left the queues hold %+v", d)
	}
	e := Expect{States: map[string]ledger.State{}}
	for _, d := range docs {
		e.States[d.Key] = ledger.Unknown
	}
	w.Check(e)
	w.Submit(1, docs...) // duplicates change nothing
	next := w.Start("next")
	w.UntilQuiet()
	next.Says(`"decision":"hold"`)
	w.Leave(next)
	w.Check(e)
	if n := w.Models.Requests(); n != len(docs) {
		t.Errorf("%d requests for %d calls", n, len(docs))
	}
}

// Acknowledgements on their way are not lost by leaving at once.
func TestLeavingFlushesAcks(t *testing.T) { t.Parallel(); leavingFlushesAcks(t, RabbitMQ) }

func leavingFlushesAcks(t *testing.T, b Broker) {
	keys := b.Fit(200, 1)
	w := NewWorld(t, Options{Broker: b, Workers: 64, Drain: time.Minute})
	w.Submit(1, Docs(keys)...)
	p := w.Start("only")
	w.Eventually(func() (bool, string) { return len(w.Models.Bill()) == keys, "all calls on the bill" })
	p.Leave()
	if d := w.Depth(); d != (Depth{}) {
		t.Errorf("after the worker left the queues hold %+v", d)
	}
	w.Check(Expect{})
}
