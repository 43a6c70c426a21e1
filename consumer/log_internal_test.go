package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// What is said of a delivery reads as if its names had been given to With.
func TestSubject(t *testing.T) {
	named := &work{held: &held{d: broker.Delivery{Message: broker.Message{ID: "m1"}}}, key: ledger.Key{Tenant: "acme", Text: "acme:a:1"}}
	for _, c := range []struct {
		what  string
		w     *work
		run   int
		fence int64
		with  []any
	}{
		{"a message that is not read", &work{held: named.held}, 0, 0, []any{"message_id", "m1"}},
		{"a job", named, 0, 0, []any{"message_id", "m1", "job", "a", "key", "acme:a:1"}},
		{"a run", named, 2, 3, []any{"message_id", "m1", "job", "a", "key", "acme:a:1", "run", 2, "fence", 3}},
		{"a job that the ledger carries", &work{key: named.key}, 0, 0, []any{"message_id", "", "job", "a", "key", "acme:a:1"}},
	} {
		var got, want bytes.Buffer
		log := func(to *bytes.Buffer) *slog.Logger {
			return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})).With("worker", "w")
		}
		said := func(l *slog.Logger) {
			l.Info("plain", "more", 1)
			l.With("more", 1).Info("with")
			l.WithGroup("group").Info("grouped", "more", 1)
			l.Debug("not said")
		}
		consumer := &Consumer{log: log(&got)}
		said(consumer.logger(c.w, "a", c.run, c.fence))
		said(log(&want).With(c.with...))
		if got.String() != want.String() {
			t.Errorf("%s:\n%swant\n%s", c.what, got.String(), want.String())
		}
	}
}

// What is said of a delivery before it is read names its message.
func TestBegun(t *testing.T) {
	var got bytes.Buffer
	c := &Consumer{log: slog.New(slog.NewTextHandler(&got, nil)), trace: new(tracer), active: map[*work]struct{}{}}
	c.begin(&held{d: broker.Delivery{Message: broker.Message{ID: "m1"}}}).log.Info("said")
	if !strings.Contains(got.String(), "message_id=m1") {
		t.Errorf("said is %s", got.String())
	}
}
