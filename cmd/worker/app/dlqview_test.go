package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
)

func TestDeadLettersAreNotToBeHad(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.setAside(w.queue, letter("1", "x"), "delivery_limit")
	w.refused(exitUsage, "", []string{"dlq", "redrive", "--reason", " \t"}, "PO502 --reason")
	o := w.do("", "dlq", "redrive", "--reason", "r", "--match", "a\n\x1b[2Jb")
	if want := "not shown, since they are not what --match a \uFFFD[2Jb asks for: 1\n"; o.code != exitDone || o.stdout != want || strings.Contains(o.stderr, "redriven") {
		t.Errorf("a redrive of nothing: exit %d, says\n%s%swant %s, and nothing in the log", o.code, o.stdout, o.stderr, want)
	}
	w.ledger = nil
	w.refused(exitUsage, "", []string{"dlq", "list"}, "PO504")
}

func TestOneLine(t *testing.T) {
	long := strings.Repeat("é", 200)
	for in, want := range map[string]string{"a\r\n\tb": "a   b", "\x1b[2J": "\uFFFD[2J", long: long, long + "é": long + "…"} {
		if got := oneLine(in); got != want {
			t.Errorf("%q in one line is %q, want %q", in, got, want)
		}
	}
}

// keyless is a message whose key cannot be made.
type keyless struct {
	Tenant string `json:"tenant"`
}

func (keyless) JobKey() job.Key { panic("no key of " + action) }

const action = "keyless.do"

// A JobKey that panics is a fault of its message, not the end of the command.
func TestDeadLetterThatPanics(t *testing.T) {
	var reg job.Registry
	job.Register(&reg, job.Def[keyless, string]{Name: action, Handle: func(context.Context, *job.Run, keyless) (string, error) { return "", nil }})
	r := &review{messages: consumer.Config{Handlers: &reg}}
	l, err := r.look(t.Context(), broker.DeadLetter{Message: broker.Message{Body: []byte(`{"tenant":"acme"}`), Attributes: map[string]string{consumer.Attribute: action}}})
	if err != nil || l.Verdict != unreadable || !strings.Contains(l.Fault, "no key of "+action) || l.Receives != nil {
		t.Errorf("%+v, %v; want unreadable, with the panic as its fault, and no number of receives", l, err)
	}
	if _, _, err := r.decode(t.Context(), broker.Message{Body: []byte(`{"tenant":"acme"}`), Attributes: map[string]string{consumer.Attribute: action}}); !isPanic(err) {
		t.Errorf("decode: %v, want a panic", err)
	}
}

func isPanic(err error) bool { _, ok := errors.AsType[*job.PanicError](err); return ok }
