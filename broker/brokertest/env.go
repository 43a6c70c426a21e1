package brokertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// env is what a case works with: the test, its harness, and the checks that
// cases share.
type env struct {
	*testing.T
	*Harness
}

// patient is a context for one call that must succeed.
func (e *env) patient() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience)
	e.Cleanup(cancel)
	return ctx
}

// publish sends ms in one call.
func (e *env) publish(ms ...broker.Message) {
	e.Helper()
	if err := e.Publisher.Publish(e.patient(), ms...); err != nil {
		e.Fatalf("publish %d messages: %v", len(ms), err)
	}
}

// publishText sends one message per body.
func (e *env) publishText(bodies ...string) {
	e.Helper()
	ms := make([]broker.Message, len(bodies))
	for i, b := range bodies {
		ms[i] = broker.Message{Body: []byte(b)}
	}
	e.publish(ms...)
}

// receive takes 1 to n deliveries and checks what holds for every Receive.
func (e *env) receive(s broker.Source, n int) []broker.Delivery {
	e.Helper()
	ds, err := s.Receive(e.patient(), n)
	if err != nil {
		e.Fatalf("receive up to %d: %v", n, err)
	}
	if len(ds) < 1 || len(ds) > n {
		e.Fatalf("receive up to %d: %d deliveries without an error", n, len(ds))
	}
	for _, d := range ds {
		e.wellFormed(d)
	}
	return ds
}

// one takes a single delivery.
func (e *env) one(s broker.Source) broker.Delivery {
	e.Helper()
	return e.receive(s, 1)[0]
}

// collect receives until it has n deliveries, all held at the same time.
func (e *env) collect(s broker.Source, n int) []broker.Delivery {
	e.Helper()
	var got []broker.Delivery
	for len(got) < n {
		got = append(got, e.receive(s, n-len(got))...)
	}
	return got
}

// wellFormed checks the fields every delivery has.
func (e *env) wellFormed(d broker.Delivery) {
	e.Helper()
	if d.ID == "" || d.Receipt == "" {
		e.Errorf("delivery has id %q and receipt %q, want both set", d.ID, d.Receipt)
	}
	if e.CountsReceives && d.Receives < 1 {
		e.Errorf("first hand-out counts as 1, got Receives %d", d.Receives)
	}
	if !e.CountsReceives && d.Receives != 0 {
		e.Errorf("this broker does not count, got Receives %d", d.Receives)
	}
	if !d.Deadline.IsZero() && !d.Deadline.After(time.Now()) {
		e.Errorf("handed out with its deadline %v over", d.Deadline)
	}
}

// ack settles ds.
func (e *env) ack(s broker.Source, ds ...broker.Delivery) {
	e.Helper()
	for _, d := range ds {
		if err := s.Ack(e.patient(), d); err != nil {
			e.Fatalf("ack %q: %v", d.Body, err)
		}
	}
}

// is checks that err is want.
func (e *env) is(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// same checks that m is what was published.
func (e *env) same(m, want broker.Message) {
	e.Helper()
	if !bytes.Equal(m.Body, want.Body) {
		e.Errorf("body: got %s, want %s", brief(m.Body), brief(want.Body))
	}
	if !maps.Equal(m.Attributes, want.Attributes) {
		e.Errorf("attributes: got %q, want %q", m.Attributes, want.Attributes)
	}
}

// depth waits until the queue's counts are as wanted.
func (e *env) depth(ready, held int) {
	e.Helper()
	e.depthIs(func(r, h int) bool { return r == ready && h == held }, "%d ready and %d held", ready, held)
}

// total waits until the queue holds n messages, in whatever state.
func (e *env) total(n int) {
	e.Helper()
	e.depthIs(func(r, h int) bool { return r+h == n }, "%d in all", n)
}

// drained checks the end state of a case that settled everything: nothing is
// left in the queue, and the dead letters are exactly want.
func (e *env) drained(want ...DeadLetter) {
	e.Helper()
	e.depth(0, 0)
	got, err := e.DeadLetters(e.patient())
	if err != nil {
		e.Fatalf("list dead letters: %v", err)
	}
	if len(got) != len(want) {
		e.Fatalf("%d dead letters, want %d: %v", len(got), len(want), got)
	}
	byReason := func(a, b DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), bytes.Compare(a.Message.Body, b.Message.Body))
	}
	slices.SortFunc(got, byReason)
	slices.SortFunc(want, byReason)
	for i := range want {
		e.same(got[i].Message, want[i].Message)
		if got[i].Reason != want[i].Reason {
			e.Errorf("dead letter reason %q, want %q", got[i].Reason, want[i].Reason)
		}
	}
}

// depthIs asks for the depth until ok, or until Patience is over.
func (e *env) depthIs(ok func(ready, held int) bool, format string, args ...any) {
	e.Helper()
	ctx := e.patient()
	for {
		r, h, err := e.Depth(ctx)
		if err == nil && ok(r, h) {
			return
		}
		select {
		case <-ctx.Done():
			e.Errorf("queue depth: %d ready and %d held (error %v), want "+format, append([]any{r, h, err}, args...)...)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// brief prints a body that may be large.
func brief(b []byte) string {
	if len(b) <= 80 {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:60])) + "… (" + strconv.Itoa(len(b)) + " bytes)"
}
