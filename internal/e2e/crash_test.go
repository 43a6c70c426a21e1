package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

var (
	seed  = flag.Uint64("seed", shortSeed, "of the random deaths")
	storm = flag.Duration("storm", 8*time.Second, "how long workers die at random")
)

// Workers die at random moments, most of them with calls on the wire. No key is paid
// twice and none is lost: it is done, or unknown with its attempt on record, and
// then a person decides.
func TestKilledAtRandom(t *testing.T) { OnEach(t, killedAtRandom) }

func killedAtRandom(t *testing.T, b Broker) {
	const slots = 4
	keys := b.Fit(max(20, int(20*storm.Seconds())), 2)
	w := NewWorld(t, Options{
		Broker: b, Visibility: 6 * time.Second,
		Models:  modelserver.Options{Latency: min(2*time.Second, 2*slots**storm/time.Duration(keys))}, // more than they finish in that time
		Routes:  map[string]string{summarize.Name: "anthropic 6s", invoice.Name: "openai 6s"},         // only OpenAI can be asked later
		Workers: slots,
	})
	// Three that are certainly under way when their worker dies.
	held := []Doc{Ticket("held-0"), Ticket("held-1"), Ticket("held-2")}
	for _, d := range held {
		w.Models.Script(d.Key, modelserver.Fault{Hold: true})
	}
	w.Submit(1, held...)
	first := w.Start("first")
	for _, d := range held {
		w.Billed(d.Key)
	}
	first.Kill()

	w.Submit(2, Docs(keys)...)
	r := rand.New(rand.NewPCG(*seed, *seed))
	procs := []*Proc{w.Start("a0"), w.Start("b0")}
	n := 0
	for end := time.Now().Add(*storm); time.Now().Before(end); n++ {
		time.Sleep(100*time.Millisecond + time.Duration(r.Int64N(int64(900*time.Millisecond))))
		i := r.IntN(len(procs))
		procs[i].Kill()
		procs[i] = w.Start(fmt.Sprintf("%c%d", 'a'+i, n+1))
	}
	w.UntilState(ledger.Done, ledger.Unknown)
	w.UntilQuiet()
	w.untilAsked()
	expect := w.onePaymentEach()
	t.Logf("seed %d: %d kills; unknown: %d of %d", *seed, n, len(expect.States), keys+len(held))
	for _, d := range held {
		if expect.States[d.Key] != ledger.Unknown {
			t.Fatalf("%s is not unknown\n%s", d.Key, story(w.Job(d.Key)))
		}
	}
	w.resolve(&expect, held)
	w.Leave(procs...)
	w.Check(expect)
}

// untilAsked waits until OpenAI was asked about every unknown call. Then nothing but a
// person changes what is unknown. A call whose worker died between the mark and the wire is in no store, and stays.
func (w *World) untilAsked() {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		for key, j := range w.Jobs() {
			if w.docs[key].Job == invoice.Name && j.State != ledger.Done && !w.neverSent(key) {
				return false, fmt.Sprintf("%s is %s, want done", key, j.State)
			}
		}
		return true, ""
	})
}

// neverSent reports whether an unknown job's call is on nobody's bill, and too old to come there.
func (w *World) neverSent(key string) bool {
	j := w.Job(key)
	return j.State == ledger.Unknown && len(w.Models.BillByKey()[key]) == 0 && time.Since(j.Attempts[len(j.Attempts)-1].SentAt) > 15*time.Second
}

// onePaymentEach checks what must hold before anybody decides, and returns the state
// it found as what is expected.
func (w *World) onePaymentEach() Expect {
	w.t.Helper()
	e := Expect{States: map[string]ledger.State{}, Bill: map[string]int{}}
	for key := range w.docs {
		j, lines := w.Job(key), w.Models.BillByKey()[key]
		switch {
		case len(lines) > 1:
			w.t.Errorf("%s was paid %d times\n%s", key, len(lines), story(j))
		case j.State == ledger.Unknown: // a worker may die between the mark and the wire
			e.States[key], e.Bill[key] = ledger.Unknown, len(lines)
			if j.OpenCalls != 1 {
				w.t.Errorf("%s is unknown with %d open calls\n%s", key, j.OpenCalls, story(j))
			}
		}
	}
	return e
}

// resolve decides about unknown jobs at the command line: the held ones in the three
// ways there are, some others by an answer. The rest stays unknown.
func (w *World) resolve(e *Expect, held []Doc) {
	w.t.Helper()
	const summary = `{"summary":"By hand."}`
	say := func(key, stdin string, how ...string) {
		w.Must(stdin, append([]string{"jobs", "resolve", key, "--reason", "test"}, how...)...)
		delete(e.States, key)
	}
	say(held[0].Key, summary, "--result", "-")
	say(held[1].Key, "", "--absent")
	e.Bill[held[1].Key]++
	say(held[2].Key, "", "--fail")
	answered := 0
	for key := range e.States {
		if answered < 5 {
			answered++
			say(key, summary, "--result", "-")
		}
	}
	e.States[held[2].Key] = ledger.Failed
	w.Until(*e)
	if got := string(w.Job(held[0].Key).Result.Body); got != summary {
		w.t.Errorf("the result is %s, want what the person said", got)
	}
	if j := w.Job(held[2].Key); j.Error == nil || j.Error.Class != "held" {
		w.t.Errorf("the job given up has the error %v", j.Error)
	}
}

// A worker is frozen after the provider logged its call. Its lease lapses, another
// worker marks the job unknown and sends nothing; when the frozen one wakes, its late
// answer is the result.
func TestFrozenWorkerReports(t *testing.T) { OnEach(t, frozenWorkerReports) }

func frozenWorkerReports(t *testing.T, broker Broker) {
	w := NewWorld(t, Options{
		Broker: broker, Visibility: 3 * time.Second,
		Routes:       map[string]string{summarize.Name: "anthropic 60s"},
		SettleWindow: time.Minute, Hold: time.Minute,
	})
	d := Ticket("1")
	w.Models.Script(d.Key, modelserver.Fault{Hold: true})
	w.Submit(1, d)
	a := w.Start("a")
	w.Billed(d.Key)
	a.Freeze()
	b := w.Start("b")
	w.UntilState(ledger.Unknown)
	w.Submit(1, d) // a duplicate meanwhile sends nothing either
	deliveries := 1
	if broker.TakesBack {
		deliveries++
	}
	w.Eventually(func() (bool, string) {
		n := b.Sum("paidonce_deliveries_total")
		return n >= float64(deliveries), fmt.Sprintf("b had %v deliveries, want %d", n, deliveries)
	})
	w.Models.Release(d.Key)
	a.Thaw()
	w.UntilState(ledger.Done)
	j := w.Job(d.Key)
	if len(j.Attempts) != 1 || j.Attempts[0].Evidence.By != ledger.BySender || w.Models.Requests() != 1 {
		t.Errorf("%d requests; the answer is not the frozen worker's\n%s", w.Models.Requests(), story(j))
	}
	w.UntilQuiet()
	w.Leave(a, b)
	w.Check(Expect{})
}
