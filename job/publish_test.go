package job

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestPublish: what a handler asks for, and what its result takes along.
func TestPublish(t *testing.T) {
	one, other, two := note{"acme", "1", "hello"}, note{"acme", "1", "good bye"}, note{"acme", "2", "hello"}
	sized := func(n int) note {
		return note{"acme", "1", strings.Repeat("x", n-len(`{"Tenant":"acme","ID":"1","Text":""}`))}
	}
	for name, c := range map[string]struct {
		ask   func(j *Run) error
		want  string // the messages
		err   string // begins the error, which is permanent and sticks
		alone bool   // no broker
	}{
		"none":      {func(*Run) error { return nil }, "", "", false},
		"in order":  {func(j *Run) error { return oneOf(j.Publish("b", two), j.Publish("a", one)) }, "b acme:mail:2:v1, a acme:mail:1:v1", "", false},
		"twice":     {func(j *Run) error { return oneOf(j.Publish("a", one), j.Publish("a", one)) }, "a acme:mail:1:v1", "", false},
		"two jobs":  {func(j *Run) error { return oneOf(j.Publish("a", one), j.Publish("b", one)) }, "a acme:mail:1:v1, b acme:mail:1:v1", "", false},
		"changed":   {func(j *Run) error { return oneOf(j.Publish("a", one), j.Publish("a", other)) }, "a acme:mail:1:v1, a acme:mail:1:v1", "", false},
		"no key":    {func(j *Run) error { return j.Publish("a", note{"acme", "", "x"}) }, "", "PO586", false},
		"no job":    {func(j *Run) error { return j.Publish("", one) }, "", "PO586", false},
		"bad name":  {func(j *Run) error { return j.Publish("a\x00", one) }, "", "PO586", false},
		"long name": {func(j *Run) error { return j.Publish(strings.Repeat("a", ledger.MaxText+1), one) }, "", "PO586", false},
		"no broker": {func(j *Run) error { return j.Publish("a", one) }, "", "PO588", true},
		"largest":   {func(j *Run) error { return j.Publish("a", sized(ledger.MaxMessageBytes-ledger.WrapRoom)) }, "a acme:mail:1:v1", "", false},
		"too large": {func(j *Run) error { return j.Publish("a", sized(ledger.MaxMessageBytes-ledger.WrapRoom+1)) }, "", "PO587", false},
		"too many": {func(j *Run) (err error) {
			for i := range ledger.MaxMessages + 1 {
				err = j.Publish("a", note{"acme", fmt.Sprint(i), "x"})
			}
			return err
		}, "many", "PO587", false},
	} {
		j := testRun(t, nil, func(cfg *RunConfig) { cfg.Publishes = !c.alone })
		var asked error
		h := newHandler(Def[note, string]{Name: "asker", Handle: func(_ context.Context, j *Run, _ note) (string, error) {
			asked = c.ask(j)
			return "done", nil // an error is swallowed
		}})
		if _, err := h.Run(t.Context(), j, &Content{in: one}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		res := j.Result(nil)
		var got []string
		for _, m := range res.Messages {
			var n note
			if err := decodeStrict(m.Body, &n); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = append(got, m.Action+" "+n.JobKey().String())
		}
		if c.want == "many" && len(got) == ledger.MaxMessages {
			got = []string{"many"}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: messages %q, want %q", name, s, c.want)
		}
		if err := res.CheckMessages(); err != nil {
			t.Errorf("%s: the ledger would refuse it: %v", name, err)
		}
		sticky := j.Sticky()
		class, _ := ClassOf(sticky)
		switch {
		case c.err == "" && (asked != nil || sticky != nil):
			t.Errorf("%s: %v, sticky %v", name, asked, sticky)
		case c.err != "" && (asked == nil || sticky == nil || !strings.HasPrefix(sticky.Error(), c.err) || class != Permanent):
			t.Errorf("%s: %v, sticky %v (%s); want %s", name, asked, sticky, class, c.err)
		}
		if err := j.Publish("a", two); err == nil || !strings.HasPrefix(err.Error(), "PO584") {
			t.Errorf("%s: asked when the result was taken: %v", name, err)
		}
	}
}

// oneOf is the first error of some.
func oneOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
