package ledgertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/paidonce/paidonce/ledger"
)

// submitCases: jobs that a program puts on record.
var submitCases = []testCase{
	{"submit", "a job that was submitted is never run, or not as it was asked for", submit},
	{"submit again", "a double click is two jobs, or one with another input passes for the same", submitAgain},
	{"submit at once", "of two servers that submit one job each makes one, or they wait for each other for ever", submitAtOnce},
	{"submit what cannot be", "a job that nobody can run is taken for submitted, or a part of a call is", submitWrong},
}

// submission asks for the job of that name as env.request does.
func (e *env) submission(name string) ledger.Submission {
	r := e.request(name)
	return ledger.Submission{Key: r.Key, Action: r.Action, InputHash: r.InputHash, Input: r.Input, Origin: ledger.Origin{Trace: "00-" + name}, Who: "shop"}
}

// submitted submits, and checks what each found.
func (e *env) submitted(want string, all ...ledger.Submission) {
	e.Helper()
	found, err := e.Store.Submit(e.Context(), all...)
	if err != nil {
		e.Fatalf("submit: %v", err)
	}
	if got := fmt.Sprint(found); got != want {
		e.Errorf("submit found %s, want %s", got, want)
	}
}

func submit(e *env) {
	e.submitted("[]")
	s, b := e.submission("s"), e.submission("b")
	b.Who = ""
	e.submitted("[{true ready false} {true ready false}]", s, b)
	for who, s := range map[string]ledger.Submission{"shop": s, "producer": b} {
		got := e.sound(s.Key)
		if got.State != ledger.Ready || got.Runs != 0 || got.Fence != 1 || got.Carrier != ledger.CarriedByLedger || got.Action != s.Action ||
			got.InputHash != s.InputHash || !got.InputKept || got.Origin != s.Origin || got.Generation != 1 {
			e.Errorf("the job is %+v", got)
		}
		if h := got.History; len(h) != 1 || h[0].From != "" || h[0].To != ledger.Ready || h[0].Actor != who || h[0].Reason != "J1s submit" {
			e.Errorf("its history is %+v", h)
		}
	}
	due, err := e.Store.Due(e.Context(), 10, long)
	if err != nil || len(due) != 2 || string(due[0].Input) != string(s.Input) && string(due[1].Input) != string(s.Input) {
		e.Fatalf("the ledger would run %+v (%v)", due, err)
	}
	j := e.start(e.request("s")) // by its message, which may come too
	j.complete()
	j.row(row{State: ledger.Done, Runs: 1, Fence: 2, Carrier: ledger.CarriedByLedger, Result: `{"n":1}`})
	e.submitted("[{false done false}]", s)
}

func submitAgain(e *env) {
	s := e.submission("a")
	e.submitted("[{true ready false}]", s)
	e.submitted("[{false ready false}]", s)
	other := s
	other.InputHash, other.Input = ledger.Hash{7}, []byte(`{"doc":"other"}`)
	e.submitted("[{false ready true}]", other)
	other = s
	other.Action = "another"
	e.submitted("[{false ready true} {true ready false}]", other, e.submission("b"))
	if j := e.sound(s.Key); len(j.History) != 1 || j.InputHash != s.InputHash || j.Action != s.Action {
		e.Errorf("the job is %+v", j)
	}
	running := e.run("c")
	e.submitted("[{false running false}]", e.submission("c"))
	running.row(row{State: ledger.Running, Runs: 1, Fence: 1})
	s.Key = ledger.Key{Tenant: "other", Text: "other:" + s.Key.Text}
	e.submitted("[{true ready false}]", s)
}

func submitAtOnce(e *env) {
	const servers, jobs = 8, 20
	var mu sync.Mutex
	made := map[string]int{}
	var all sync.WaitGroup
	for server := range servers {
		all.Go(func() {
			var ss []ledger.Submission
			for i := range jobs { // each in an order of its own
				ss = append(ss, e.submission(fmt.Sprint((i*(2*server+1)+server)%jobs)))
			}
			seen := map[ledger.Key]bool{}
			n := 0
			for _, s := range ss {
				if !seen[s.Key] {
					seen[s.Key] = true
					ss[n] = s
					n++
				}
			}
			found, err := e.Store.Submit(e.Context(), ss[:n]...)
			if err != nil {
				e.Errorf("submit: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, f := range found {
				if f.State != ledger.Ready || f.Other {
					e.Errorf("%s: %+v", ss[i].Key, f)
				}
				if f.New {
					made[ss[i].Key.Text]++
				}
			}
		})
	}
	all.Wait()
	for key, n := range made {
		if n != 1 {
			e.Errorf("%s was made %d times", key, n)
		}
	}
	if len(made) != jobs {
		e.Errorf("%d jobs were made, want %d", len(made), jobs)
	}
}

func submitWrong(e *env) {
	good := e.submission("good")
	for what, change := range map[string]func(*ledger.Submission){
		"no input":              func(s *ledger.Submission) { s.Input = nil },
		"no tenant":             func(s *ledger.Submission) { s.Key.Tenant = "" },
		"no key":                func(s *ledger.Submission) { s.Key.Text = "" },
		"no action":             func(s *ledger.Submission) { s.Action = "" },
		"a zero byte":           func(s *ledger.Submission) { s.Key.Text += "\x00" },
		"more than a row":       func(s *ledger.Submission) { s.Input = make([]byte, ledger.InlineInput+1) },
		"the same key as other": func(s *ledger.Submission) { s.Key = good.Key },
	} {
		bad := e.submission("bad")
		change(&bad)
		if _, err := e.Store.Submit(e.Context(), good, bad); !errors.Is(err, ledger.ErrRequest) {
			e.Errorf("%s: %v, want ErrRequest", what, err)
		}
		e.absent(good.Key)
	}
}
