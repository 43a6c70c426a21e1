package job

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// applier is a ledger that applies answers: it runs their work, which is a func() error here.
type applier struct {
	*fake
	applied []ledger.ID       // asked for, in order
	before  func(n int) error // before the nth work runs, from 1
}

func (f *applier) Apply(_ context.Context, _ ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	f.applied = append(f.applied, attempt)
	if f.before != nil {
		if err := f.before(len(f.applied)); err != nil {
			return err
		}
	}
	if err := ledger.Work(work.(func() error)); err != nil {
		return errors.Join(ledger.ErrHook, err)
	}
	return nil
}

// paying is a call that is answered at once.
func paying(memo Memo) Call[string, string] {
	return Call[string, string]{Name: "ask", Memo: memo, Routes: []Route[string, string]{{Name: "only", Provider: "fake", Timeout: time.Minute,
		Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
			return "answer to " + in, a.Sent(ctx)
		}}}}
}

func applying(t *testing.T, f *applier) *Run {
	j := testRun(t, f, func(c *RunConfig) { c.Publishes = true })
	j.calls, j.declared = map[string]CallInfo{"ask": {}, "other": {}}, map[string]bool{"mail": true}
	return j
}

// noWork is work that the test does not expect to run.
func noWork(string) ledger.Hook { return func() error { panic("it ran") } }

func TestRunTx(t *testing.T) {
	f := &applier{fake: &fake{}}
	j := applying(t, f)
	var rows []string
	for range 2 {
		out, err := paying(ByName).RunTx(t.Context(), j, "a", func(out string) ledger.Hook { return func() error { rows = append(rows, out); return nil } })
		if err != nil || out != "answer to a" {
			t.Errorf("%q, %v", out, err)
		}
	}
	id := f.one(t).ID
	if f.sends != 1 || !slices.Equal(f.applied, []ledger.ID{id, id}) || !slices.Equal(rows, []string{"answer to a", "answer to a"}) { // that it is applied once is the ledger's to know
		t.Errorf("%d sends, applied %v, rows %q", f.sends, f.applied, rows)
	}
}

// TestRunTxRefused: what ends RunTx without rows leaves the answer, and says so.
func TestRunTxRefused(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		err          error
		is, sticky   error
		tries, sends int
	}{
		"the work fails":        {errors.Join(ledger.ErrHook, Fail(boom)), boom, nil, 1, 1},
		"the lease is lost":     {ledger.ErrLost, ErrLost, ErrLost, 1, 1},
		"no such answer":        {ledger.ErrState, ledger.ErrState, nil, 1, 1},
		"another kind of store": {ledger.ErrHook, ledger.ErrHook, nil, 1, 1},
	} {
		f := &applier{fake: &fake{}, before: func(int) error { return c.err }}
		j := applying(t, f)
		out, err := paying(ByName).RunTx(t.Context(), j, "a", noWork)
		if !errors.Is(err, c.is) || out != "" || !errors.Is(j.Sticky(), c.sticky) || len(f.applied) != c.tries || f.sends != c.sends {
			t.Errorf("%s: %q, %v, sticky %v; %d tries, %d sends", name, out, err, j.Sticky(), len(f.applied), f.sends)
		}
		if out, err := paying(ByName).Run(t.Context(), j, "a"); err != nil || out != "answer to a" || f.sends != c.sends {
			t.Errorf("%s: the answer is lost: %q, %v, %d sends", name, out, err, f.sends)
		}
		if class, _ := ClassOf(err); name == "the work fails" && class != Permanent {
			t.Errorf("the class of the work's error is %q", class)
		}
	}
	f := &applier{fake: &fake{}}
	if _, err := paying(EachCall).RunTx(t.Context(), applying(t, f), "a", noWork); err == nil || !strings.HasPrefix(err.Error(), "PO630") || f.sends != 0 {
		t.Errorf("a call that no later run knows: %v, %d sends", err, f.sends)
	}
}

// TestRunTxWaits: while the ledger is out of reach the answer waits for it, and no longer than the run may go on.
func TestRunTxWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &applier{fake: &fake{}, before: func(n int) error {
			if n < 4 {
				return errStore
			}
			return nil
		}}
		ran := 0
		if _, err := paying(ByName).RunTx(t.Context(), applying(t, f), "a", func(string) ledger.Hook { return func() error { ran++; return nil } }); err != nil || ran != 1 || len(f.applied) != 4 {
			t.Errorf("%v, the work ran %d times in %d tries", err, ran, len(f.applied))
		}
		enough := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { stop(enough) })
		f = &applier{fake: &fake{}, before: func(int) error { return errStore }}
		if _, err := paying(ByName).RunTx(ctx, applying(t, f), "a", noWork); !errors.Is(err, enough) || len(f.applied) < 10 {
			t.Errorf("after a minute: %v, %d tries", err, len(f.applied))
		}
		f = &applier{fake: &fake{}}
		if _, err := paying(ByName).RunTx(ctx, applying(t, f), "a", noWork); !errors.Is(err, enough) || len(f.applied) != 0 {
			t.Errorf("of a run that is over: %v, %d tries", err, len(f.applied))
		}
	})
}

// TestRunTxLate: an earlier attempt's answer came before this one's. It is the call's, whoever asks, and the other is wasted.
func TestRunTxLate(t *testing.T) {
	first := ledger.NewID()
	f := &applier{fake: &fake{}}
	f.before = func(n int) error {
		if n > 1 {
			return nil
		}
		f.attempts = append([]*fakeAttempt{{Attempt: ledger.Attempt{ID: first, Call: ledger.CallRef{Name: "ask"}, Route: "only"}, state: ledger.Received,
			evidence: ledger.Evidence{Response: &ledger.Response{Codec: "json", Body: []byte(`"an earlier answer"`)}}}}, f.attempts...)
		return ledger.ErrLate
	}
	j := applying(t, f)
	var rows []string
	out, err := paying(ByName).RunTx(t.Context(), j, "a", func(out string) ledger.Hook { return func() error { rows = append(rows, out); return nil } })
	if err != nil || out != "an earlier answer" || !slices.Equal(rows, []string{"an earlier answer"}) || f.sends != 1 || f.applied[1] != first {
		t.Errorf("%q, %v, rows %q, %d sends, applied %v", out, err, rows, f.sends, f.applied)
	}
	if used := j.Result(nil).Used; !slices.Equal(used, []ledger.ID{first}) {
		t.Errorf("the result uses %v, want %v", used, first)
	}
}

// TestNothingWithinWork: work of a transaction that pays, or asks for what follows, is refused, and the run gets no result even if it swallows that.
func TestNothingWithinWork(t *testing.T) {
	other := paying(ByName)
	other.Name = "other"
	step := mail(unused)
	for name, do := range map[string]func(j *Run) error{
		"a call":       func(j *Run) error { _, err := other.Run(t.Context(), j, "b"); return err },
		"the same":     func(j *Run) error { _, err := paying(ByName).Run(t.Context(), j, "a"); return err },
		"another work": func(j *Run) error { _, err := other.RunTx(t.Context(), j, "b", noWork); return err },
		"a step":       func(j *Run) error { return step.After(j, note{"acme", "1", "hello"}) },
		"a message":    func(j *Run) error { return j.Publish("email", note{"acme", "1", "hello"}) },
	} {
		f := &applier{fake: &fake{}}
		j := applying(t, f)
		var got error
		_, err := paying(ByName).RunTx(t.Context(), j, "a", func(string) ledger.Hook { return func() error { got = do(j); return nil } })
		class, _ := ClassOf(j.Sticky())
		if err != nil || got == nil || !strings.HasPrefix(got.Error(), "PO631") || j.Sticky() == nil || class != Permanent || f.sends != 1 {
			t.Errorf("%s: %v, then %v, sticky %v (%s), %d sends", name, got, err, j.Sticky(), class, f.sends)
		}
		if r := j.Result(nil); len(r.Steps)+len(r.Messages) != 0 {
			t.Errorf("%s: the result asks for %d steps and %d messages", name, len(r.Steps), len(r.Messages))
		}
		if name == "another work" {
			continue
		}
		if err := do(applying(t, f)); err != nil {
			t.Errorf("%s in the handler itself: %v", name, err)
		}
	}
}
