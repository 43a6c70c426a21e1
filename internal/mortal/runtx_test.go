package mortal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// order is the message of the tests.
type order struct{ Tenant, ID string }

func (o order) JobKey() job.Key { return job.K(o.Tenant, "order", o.ID) }

const orderKey = "acme:order:1"

// shop is a job with two paid calls, of which the first one's answer gets a row of its own at once, and the result
// another one. Rows outlive processes, as does the bill.
type shop struct {
	*mortal.World
	first, second job.Call[order, string]
	inWork        func(n int) error // in the work of the first call's answer, the nth time

	mu    sync.Mutex
	bill  []string // calls
	rows  []string
	works int
	runs  atomic.Int64
}

func newShop(w *mortal.World) *shop {
	s := &shop{World: w}
	s.first, s.second = s.call("first"), s.call("second")
	w.Register = func(reg *job.Registry) {
		job.Register(reg, job.Def[order, string]{Name: "order", Uses: job.Uses(s.first, s.second), Handle: s.handle})
	}
	return s
}

func (s *shop) call(name string) job.Call[order, string] {
	return job.Call[order, string]{
		Name: name,
		Routes: []job.Route[order, string]{{Name: "only", Provider: "fake", Model: "m1", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, in order) (string, error) {
				if err := a.Sent(ctx); err != nil {
					return "", err
				}
				s.note(&s.bill, name)
				return name + " answer", nil
			}}},
		Reconcile: func(context.Context, job.Open) (string, job.Finding, error) {
			if s.count(&s.bill, name) > 0 {
				return name + " answer", job.Happened, nil
			}
			return "", job.Absent, nil
		},
	}
}

func (s *shop) handle(ctx context.Context, j *job.Run, in order) (string, error) {
	s.runs.Add(1)
	one, err := memledger.RunTx(ctx, j, s.first, in, func(ctx context.Context, out string) error {
		memledger.Then(ctx, func() { s.note(&s.rows, out) })
		s.mu.Lock()
		s.works++
		n := s.works
		s.mu.Unlock()
		if s.inWork != nil {
			return s.inWork(n)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	two, err := s.second.Run(ctx, j, in)
	if err != nil {
		return "", err
	}
	memledger.OnCommit(j, func(ctx context.Context) error {
		memledger.Then(ctx, func() { s.note(&s.rows, "result") })
		return nil
	})
	return one + ", " + two, nil
}

func (s *shop) note(list *[]string, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, what)
}

func (s *shop) count(list *[]string, what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range *list {
		if have == what {
			n++
		}
	}
	return n
}

// together wants rows and their marks together, and nothing twice.
func (s *shop) together() {
	s.Helper()
	j, ok := s.Job("acme", orderKey)
	applied := 0
	for _, a := range j.Attempts {
		if !a.Applied.IsZero() {
			applied++
		}
	}
	if rows := s.count(&s.rows, "first answer"); rows != applied || rows > 1 {
		s.Errorf("%d rows of the answer, %d answers applied", rows, applied)
	}
	if rows := s.count(&s.rows, "result"); ok && rows > 0 != (j.State == ledger.Done) || rows > 1 {
		s.Errorf("%d rows of the result, and the job is %s", rows, j.State)
	}
	if n := s.count(&s.bill, "first"); n > 1 {
		s.Errorf("the first call is on the bill %d times", n)
	}
	if n := s.count(&s.bill, "second"); n > 1 {
		s.Errorf("the second call is on the bill %d times", n)
	}
}

// done wants one of everything.
func (s *shop) done() {
	s.Helper()
	s.together()
	j, _ := s.Job("acme", orderKey)
	if j.State != ledger.Done || j.Result == nil || string(j.Result.Body) != `"first answer, second answer"` || j.OpenCalls != 0 {
		s.Errorf("the job is %s (%v), %d calls are open", j.State, j.Error, j.OpenCalls)
	}
	if rows := fmt.Sprint(s.rows); rows != "[first answer result]" {
		s.Errorf("the rows are %s", rows)
	}
	if !slices.Equal(s.bill, []string{"first", "second"}) {
		s.Errorf("the bill is %v", s.bill)
	}
	s.Drained()
}

// The worker dies at every point, or within the work: the rows of the first call's answer are there with its mark or not at all, and in
// the end once, as is all else.
func TestRunTxDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	mortal.Bubble(t, func(w *mortal.World) {
		s := newShop(w)
		s.Send("order", `{"Tenant":"acme","ID":"1"}`)
		n := s.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(time.Minute)
		s.End(n)
		s.done()
	})
	if points.Load() < 8 { // claim; send, settle; apply; look, send, settle; complete
		t.Fatalf("a run asks %d things of the ledger", points.Load())
	}
	again := 0 // handlers that ran again after the rows were committed
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %t", at, after), func(t *testing.T) {
				mortal.Bubble(t, func(w *mortal.World) {
					s := newShop(w)
					var asked atomic.Int64
					s.dieOnce(mortal.Death(at, after, &asked))
					if s.works == 1 && s.runs.Load() > 1 {
						again++
					}
				})
			})
		}
	}
	if again < 5 {
		t.Errorf("the handler ran again and not its work %d times: deaths after the rows' commit were not among them", again)
	}
	t.Run("within the work", func(t *testing.T) {
		mortal.Bubble(t, func(w *mortal.World) {
			s := newShop(w)
			var a *mortal.Node
			s.inWork = func(n int) error {
				if n == 1 {
					a.Kill()
					return errors.New("nobody hears of this")
				}
				return nil
			}
			a = s.dieOnce(func(n *mortal.Node, _ string) bool { a = n; return false })
			if s.works != 2 {
				t.Errorf("the work ran %d times, want 2", s.works)
			}
		})
	})
}

// dieOnce lets the first of two workers die.
func (s *shop) dieOnce(fate mortal.Fate) *mortal.Node {
	s.Helper()
	s.Send("order", `{"Tenant":"acme","ID":"1"}`)
	a := s.Start("a", fate)
	time.Sleep(2 * time.Hour)
	if !a.Gone() {
		s.Fatal("the first worker is alive")
	}
	a.Buried()
	s.together()
	s.Idle(2 * time.Hour)
	s.done()
	return a
}

// The work fails twice: nothing of it is there and the answer stays, so the call is made once.
func TestRunTxFails(t *testing.T) {
	mortal.Bubble(t, func(w *mortal.World) {
		s := newShop(w)
		s.inWork = func(n int) error {
			if n < 3 {
				return errors.New("no room")
			}
			return nil
		}
		s.Send("order", `{"Tenant":"acme","ID":"1"}`)
		n := s.Start("a", nil)
		time.Sleep(time.Second)
		j, _ := s.Job("acme", orderKey)
		if j.Error == nil || j.Error.Class != "retry" || !strings.Contains(j.Error.Text, "PO212") || !strings.Contains(j.Error.Text, "no room") {
			t.Errorf("the error on record is %+v", j.Error)
		}
		s.together()
		time.Sleep(time.Hour)
		s.End(n)
		s.done()
		if s.works != 3 || s.runs.Load() != 3 {
			t.Errorf("%d works in %d runs, want 3 in 3", s.works, s.runs.Load())
		}
	})
}
