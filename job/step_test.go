package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// note is the message of a step; its job is named by it too.
type note struct {
	Tenant, ID, Text string
}

func (n note) JobKey() Key { return K(n.Tenant, "mail", n.ID).Rev(1) }

// mail is a step that makes its effect by do.
func mail(do func(ctx context.Context, a *Attempt, in note) (string, error)) Step[note, string] {
	return Step[note, string]{Name: "mail", Timeout: time.Minute, Do: do}
}

func unused(context.Context, *Attempt, note) (string, error) {
	return "", errors.New("not to be made here")
}

// TestAfter: what a handler asks for, and what its result takes along.
func TestAfter(t *testing.T) {
	one, other, two := note{"acme", "1", "hello"}, note{"acme", "1", "good bye"}, note{"acme", "2", "hello"}
	step := mail(unused)
	undeclared := step
	undeclared.Name = "post"
	for name, c := range map[string]struct {
		ask  func(j *Run) error
		want []string // keys of the steps, in order
		err  string   // begins the error, which is permanent and sticks
	}{
		"none":       {func(*Run) error { return nil }, nil, ""},
		"two":        {func(j *Run) error { return errors.Join(step.After(j, two), step.After(j, one)) }, []string{"acme:mail:2:v1", "acme:mail:1:v1"}, ""},
		"twice":      {func(j *Run) error { return errors.Join(step.After(j, one), step.After(j, one)) }, []string{"acme:mail:1:v1"}, ""},
		"changed":    {func(j *Run) error { return errors.Join(step.After(j, one), step.After(j, other)) }, []string{"acme:mail:1:v1"}, "PO583"},
		"undeclared": {func(j *Run) error { return undeclared.After(j, one) }, nil, "PO580"},
		"large":      {func(j *Run) error { return step.After(j, note{"acme", "1", strings.Repeat("x", maxStepInput)}) }, nil, "PO581"},
		"largest": {func(j *Run) error {
			return step.After(j, note{"acme", "1", strings.Repeat("x", maxStepInput-len(`{"Tenant":"acme","ID":"1","Text":""}`))})
		}, []string{"acme:mail:1:v1"}, ""},
		"no key":  {func(j *Run) error { return step.After(j, note{"acme", "", "hello"}) }, nil, "PO582"},
		"own key": {func(j *Run) error { return step.After(j, note{"acme", "own", "hello"}) }, nil, "PO582"},
		"tenant":  {func(j *Run) error { return step.After(j, note{"other", "1", "hello"}) }, nil, "PO582"},
	} {
		j := testRun(t, nil, func(cfg *RunConfig) { cfg.Lease.Key = note{"acme", "own", ""}.JobKey().Ledger() })
		var asked error
		h := newHandler(Def[note, string]{Name: "asker", Steps: Steps(step), Handle: func(_ context.Context, j *Run, _ note) (string, error) {
			asked = c.ask(j)
			return "done", nil // an error is swallowed
		}})
		if _, err := h.Run(t.Context(), j, &Content{in: one}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sticky := j.Sticky()
		var got []string
		for _, a := range j.Result(nil).Steps {
			got = append(got, a.Key.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: steps %q, want %q", name, got, c.want)
		}
		if c.err == "" && (asked != nil || sticky != nil) {
			t.Errorf("%s: %v, sticky %v", name, asked, sticky)
		}
		if class, _ := ClassOf(sticky); c.err != "" && (asked == nil || sticky == nil || !strings.HasPrefix(sticky.Error(), c.err) || class != Permanent) {
			t.Errorf("%s: %v, sticky %v (%s); want %s", name, asked, sticky, class, c.err)
		}
		if err := step.After(j, two); err == nil || !strings.HasPrefix(err.Error(), "PO584") {
			t.Errorf("%s: asked when the result was taken: %v", name, err)
		}
	}
}

// TestStepAsk: what is asked for is what a message with the same content would be.
func TestStepAsk(t *testing.T) {
	var reg Registry
	step := mail(unused)
	RegisterStep(&reg, step)
	in := note{"acme", "1", "hello"}
	j := testRun(t, nil, func(cfg *RunConfig) { cfg.Origin = &ledger.Origin{Trace: "00-1"} })
	j.declared = map[string]bool{"mail": true}
	if err := step.After(j, in); err != nil {
		t.Fatal(err)
	}
	h, _ := reg.Lookup("mail")
	ask := j.Result(nil).Steps[0]
	read, err := h.Decode(ask.Input)
	if err != nil || read.in != in || read.Hash != ask.InputHash || read.Key.Ledger() != ask.Key || ask.Action != "mail" || ask.Origin.Trace != "00-1" {
		t.Errorf("asked %+v, read %+v: %v", ask, read, err)
	}
}

// TestStepRuns: what the end of Do means for the attempt and the step.
func TestStepRuns(t *testing.T) {
	for name, c := range map[string]struct {
		end  error // of Do
		want string
		err  string // begins what the handler returns
	}{
		"done":     {nil, "mail received done <id@1> 0", ""},
		"refused":  {Retry(errors.New("450")), "mail rejected refused <id@1> unknown", "call do has no answer"},
		"for good": {Fail(errors.New("550")), "mail failed failed <id@1> unknown", "call do has no answer"},
		"unsure":   {errors.New("EOF"), "mail sent unsure <id@1> unknown", "PO310"},
	} {
		b := newBench(t)
		made := 0
		step := mail(func(ctx context.Context, a *Attempt, in note) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			made++
			a.Object("<id@1>")
			return in.Text, c.end
		})
		var reg Registry
		RegisterStep(&reg, step)
		h, _ := reg.Lookup("mail")
		for range 2 {
			j := b.run()
			out, err := h.Run(t.Context(), j, &Content{in: note{"acme", "1", "hello"}})
			if c.err == "" && (err != nil || string(out) != `"hello"`) || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("%s: %q, %v", name, out, err)
			}
			row, rerr := b.l.Job(t.Context(), benchKey)
			if rerr != nil {
				t.Fatal(rerr)
			}
			at, cost := row.Attempts[0], "unknown"
			if at.Evidence.Cost != nil {
				cost = fmt.Sprint(*at.Evidence.Cost)
			}
			got := fmt.Sprintf("%s %s %s %s %s", at.Route, at.State, at.Evidence.Class, at.Evidence.ObjectID, cost)
			if got != c.want || at.Provider != "mail" || len(row.Attempts) != 1 {
				t.Errorf("%s: %d attempts, the first %q of %s; want %q", name, len(row.Attempts), got, at.Provider, c.want)
			}
			if c.end != nil {
				break
			}
			b.release(j) // as if it had died before its result was on record
		}
		if made != 1 {
			t.Errorf("%s: made %d times", name, made)
		}
	}
}

// TestStepFound: a Reconcile is given its input, and what it finds costs nothing and has its name.
func TestStepFound(t *testing.T) {
	step := mail(unused)
	step.Reconcile = func(_ context.Context, o Open, in note) (string, Finding, error) {
		o.Object("found " + in.Text)
		return in.Text, Happened, nil
	}
	find := step.call().info().Reconcile
	got, err := find(t.Context(), Open{Input: []byte(`{"Tenant":"acme","ID":"1","Text":"hello"}`)})
	if err != nil || got.Finding != Happened || got.ObjectID != "found hello" || !got.Free || string(got.Response.Body) != `"hello"` {
		t.Errorf("found %+v: %v", got, err)
	}
	if got, err := find(t.Context(), Open{}); err != nil || got.Finding != CannotTell {
		t.Errorf("without an input: %+v, %v", got, err)
	}
	if got, err := find(t.Context(), Open{Input: []byte(`[]`)}); err == nil || got.Finding != CannotTell {
		t.Errorf("with another input: %+v, %v", got, err)
	}
}

// TestStepsRegistered: a step that is asked for and that nobody runs is found at start.
func TestStepsRegistered(t *testing.T) {
	step := mail(unused)
	def := Def[note, string]{Name: "asker", Steps: Steps(step), Handle: func(context.Context, *Run, note) (string, error) { return "", nil }}
	var reg Registry
	Register(&reg, def)
	if err := reg.Check(); err == nil || !strings.HasPrefix(err.Error(), "PO585 job asker asks for step \"mail\"") {
		t.Errorf("without it: %v", err)
	}
	taken := reg
	Register(&taken, Def[note, string]{Name: "mail", Handle: def.Handle}) // a job of that name is no step
	if err := taken.Check(); err == nil {
		t.Error("a job was taken for a step")
	}
	reg = Registry{}
	Register(&reg, def)
	RegisterStep(&reg, step)
	if err := reg.Check(); err != nil {
		t.Error(err)
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "Timeout") {
			t.Errorf("a step without a timeout: %v", v)
		}
	}()
	RegisterStep(&Registry{}, Step[note, string]{Name: "slow", Do: unused})
}

// TestFreeWaitsForNoBudget: what costs nothing asks no budget of the day, whichever way it goes out. What a call cost above
// its estimate would hold back the message that tells of it until the next day.
func TestFreeWaitsForNoBudget(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	ways := map[string]func(context.Context, *Attempt) (string, error){
		"sent":   func(ctx context.Context, a *Attempt) (string, error) { return "", a.Sent(ctx) },
		"effect": func(ctx context.Context, a *Attempt) (string, error) { return keyed(ctx, a.Effect(), srv.URL) },
		"http":   func(ctx context.Context, a *Attempt) (string, error) { return keyed(ctx, a.HTTP(), srv.URL) },
	}
	for way, do := range ways {
		t.Run(way, func(t *testing.T) {
			send := func(step, free bool) ledger.DayLimits {
				f := &fake{}
				j := testRun(t, f, func(cfg *RunConfig) { cfg.Day = ledger.DayLimits{Tenant: ledger.USD} })
				c := Call[string, string]{Name: "ask", gratis: step, Routes: []Route[string, string]{{
					Name: "only", Provider: "shop", Timeout: time.Minute, Free: free,
					Do: func(ctx context.Context, a *Attempt, _ string) (string, error) { return do(ctx, a) }}}}
				j.calls = map[string]CallInfo{"ask": c.info()}
				_, _ = c.Run(t.Context(), j, "in")
				return f.one(t).Day
			}
			if d := send(true, true); d != (ledger.DayLimits{}) {
				t.Errorf("a step is sent under %+v", d)
			}
			if d := send(false, true); way != "http" && d != (ledger.DayLimits{}) { // HTTP is priced by its answer
				t.Errorf("a free effect is sent under %+v", d)
			}
			if d := send(false, false); d == (ledger.DayLimits{}) {
				t.Error("a paid call is sent under no budget")
			}
		})
	}
}
