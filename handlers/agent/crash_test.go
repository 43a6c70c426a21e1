package agent_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job/jobtest"
	"github.com/paidonce/paidonce/ledger"
)

// twoByThree are three turns with two tools each.
var twoByThree = [][]modelserver.ToolCall{
	{{Name: "today", Arguments: `{}`}, {Name: "calculate", Arguments: `{"expression":"6*7"}`}},
	{{Name: "slow", Arguments: `{"n":1}`}, {Name: "fast", Arguments: `{"n":1}`}},
	{{Name: "slow", Arguments: `{"n":2}`}, {Name: "fast", Arguments: `{"n":2}`}},
}

// whole are the attempts of a run of them.
var whole = map[string]int{"turn received": 4, "tool received": 6}

// The worker dies at every point at which something is on record or not yet, and the next one comes a day later, so that a
// clock that got into a turn's input would miss what is on record. No input of a turn is paid twice; the job is done without anybody's help, unless a turn's outcome is unknown: then it is
// held until somebody says what the provider's log says, and done after that.
func TestDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	bubble(t, twoByThree, func(r *rig) {
		r.send()
		n := r.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(time.Minute)
		r.End(n)
		r.want(ledger.Done, whole, 4)
	})
	if points.Load() < 30 { // ten calls of three each
		t.Fatalf("a run asks %d things of the ledger", points.Load())
	}
	held, repeated := 0, 0
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %t", at, after), func(t *testing.T) {
				bubble(t, twoByThree, func(r *rig) {
					h, again := dieAt(r, at, after)
					held, repeated = held+h, repeated+again
				})
			})
		}
	}
	t.Logf("%d points: %d runs were held, %d uses of tools were made again", points.Load(), held, repeated)
	if held == 0 || repeated == 0 {
		t.Errorf("%d runs were held and %d uses made again: deaths in the middle of a call were not among them", held, repeated)
	}
}

// dieAt lets the first of two workers die, and returns whether the job was held and how many uses of tools were made again.
func dieAt(r *rig, at int, after bool) (held, again int) {
	var asked atomic.Int64
	r.send()
	a := r.Start("a", mortal.Death(at, after, &asked))
	time.Sleep(26 * time.Hour)
	if !a.Gone() {
		r.Fatal("the first worker is alive")
	}
	a.Buried()
	b := r.Start("b", nil)
	time.Sleep(time.Hour)
	if j := r.job(); j.State == ledger.Unknown {
		r.once(len(r.models.Bill()))
		time.Sleep(48 * time.Hour) // held is held
		r.resolve(twoByThree)
		time.Sleep(time.Hour)
		held = 1
	}
	r.End(b)
	j := r.job()
	want := map[string]int{"turn received": 4, "tool received": 6}
	for _, a := range j.Attempts {
		if a.State == ledger.NotSent {
			want[fmt.Sprint(a.Call.Name, " ", a.State)]++
		}
	}
	r.want(ledger.Done, want, 4)
	if not := want["turn not_sent"] + want["tool not_sent"]; not > 2 || j.Runs > 3 {
		r.Errorf("%d attempts ended as not sent, and %d runs", not, j.Runs)
	}
	used := r.uses()
	for use, n := range used {
		if n > 2 {
			r.Errorf("the tool was used %d times for %s", n, use)
		}
		again += n - 1
	}
	if len(used) != 4 || again > 2 {
		r.Errorf("%d uses, %d of them made again: %v", len(used), again, used)
	}
	return held, again
}

// The same by the kit that is for everybody's handlers: a turn that asks for both tools, and one that answers.
func TestDeathEverywhere(t *testing.T) {
	def := agent.New(provider.Settings{OpenAI: provider.Account{APIKey: "k"}}, agent.Options{})
	in := agent.Task{Tenant: "acme", Task: "1077", Goal: "Work."}
	opt := jobtest.Options{Answer: "Done."}
	jobtest.CrashEverywhere(t, def, in, func(t testing.TB, end jobtest.End[agent.Answer]) {
		if end.State != ledger.Done || end.Result.Answer != "Done." || end.Sends["turn"] != 2 {
			t.Errorf("%s: %s with %+v, sent %v (%s)", end.When, end.State, end.Result, end.Sends, end.Error)
		}
	}, opt)
	jobtest.SevenPaths(t, def, in, opt)
}
