package job

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// model runs a stand-in provider whose bill has to be in order at the end.
func model(t *testing.T, opt modelserver.Options) *modelserver.Server {
	t.Helper()
	ms, err := modelserver.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("close the model server: %v", err)
		}
	})
	return ms
}

// verdict is what an attempt must come to.
type verdict struct {
	state ledger.AttemptState
	class string
	again again
	wait  time.Duration
}

// faults are the model server's, and what each means for an answer in one piece and for
// a stream.
var faults = map[modelserver.Kind][2]verdict{
	modelserver.Answer:        both(verdict{state: ledger.Received, class: "done"}),
	modelserver.Close:         both(verdict{state: ledger.Sent, class: "closed"}),
	modelserver.Reset:         both(verdict{state: ledger.Sent, class: "reset"}),
	modelserver.ResetUnread:   both(verdict{state: ledger.Sent, class: "reset"}),
	modelserver.Cut:           {{state: ledger.Sent, class: "cut_body"}, {state: ledger.Sent, class: "cut_stream"}},
	modelserver.CleanEnd:      {{state: ledger.Sent, class: "unparsable"}, {state: ledger.Sent, class: "no_terminal_event"}},
	modelserver.StreamError:   both(verdict{state: ledger.FailedAttempt, class: "provider_error", again: soon}),
	modelserver.HTML200:       both(verdict{state: ledger.Sent, class: "unparsable"}),
	modelserver.BadGateway:    both(verdict{state: ledger.Sent, class: "http_502"}),
	modelserver.GatewayTime:   both(verdict{state: ledger.Sent, class: "http_504"}),
	modelserver.Unavailable:   both(verdict{state: ledger.Sent, class: "http_503"}),
	modelserver.TimedOut:      both(verdict{state: ledger.Sent, class: "timeout"}),
	modelserver.BadRequest:    both(verdict{state: ledger.Rejected, class: "bad_request", again: never}),
	modelserver.Unauthorized:  both(verdict{state: ledger.Rejected, class: "unauthorized", again: never}),
	modelserver.Forbidden:     both(verdict{state: ledger.Rejected, class: "forbidden", again: never}),
	modelserver.TooLarge:      both(verdict{state: ledger.Rejected, class: "request_too_large", again: never}),
	modelserver.Conflict:      both(verdict{state: ledger.Rejected, class: "conflict", again: soon}),
	modelserver.RateLimit:     both(verdict{state: ledger.Rejected, class: "rate_limited", again: soon, wait: time.Second}),
	modelserver.SpendLimit:    both(verdict{state: ledger.Rejected, class: "spend_limit", again: later}),
	modelserver.Overloaded:    both(verdict{state: ledger.Rejected, class: "overloaded", again: soon}),
	modelserver.Overloaded529: both(verdict{state: ledger.Rejected, class: "overloaded", again: soon}),
	modelserver.ServerError:   both(verdict{state: ledger.FailedAttempt, class: "provider_error", again: soon}),
}

func both(v verdict) [2]verdict { return [2]verdict{v, v} }

// TestFaults: whatever happens on the wire, a stock SDK with its retries on sends
// one request, the outcome is on record as the table says, and an answer that was
// recorded is played back to the same value without a request.
func TestFaults(t *testing.T) {
	ms := model(t, modelserver.Options{})
	sent := 0
	for _, c := range clients {
		for kind, want := range faults {
			name := string(kind)
			if kind == modelserver.Answer {
				name = "answer"
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				w := want[0]
				if c.stream {
					w = want[1]
				}
				if kind == modelserver.StreamError && c.name == "messages stream" {
					w.class = "overloaded"
				}
				ms.ScriptAny(modelserver.Fault{Kind: kind})
				f := &fake{}
				got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
					return c.ask(ctx, a.HTTP(), ms.URL())
				})
				sent++
				if n := ms.Requests(); n != sent {
					t.Errorf("%d requests on the wire, want 1", n-sent+1)
					sent = n
				}
				check(t, f, got, w)
				if w.state == ledger.Received {
					replay(t, f, c, got.out, "http://127.0.0.1:1")
				}
			})
		}
	}
}

// check compares an attempt on record and its outcome with what they should be.
func check[T any](t *testing.T, f *fake, got asked[T], want verdict) {
	t.Helper()
	row, o := f.one(t), got.outcome
	if row.state != want.state || row.evidence.Class != want.class {
		t.Errorf("on record: %s, %s; want %s, %s", row.state, row.evidence.Class, want.state, want.class)
	}
	if o.evidence.State != want.state || o.evidence.Class != want.class || o.again != want.again || o.wait != want.wait {
		t.Errorf("outcome: %s, %s, again %d, wait %s; want %+v", o.evidence.State, o.evidence.Class, o.again, o.wait, want)
	}
	if (got.err == nil) != (want.state == ledger.Received) {
		t.Errorf("the call's error is %v with an attempt that is %s", got.err, want.state)
	}
	if (o.err == nil) != (want.state == ledger.Received) {
		t.Errorf("the outcome's error is %v with an attempt that is %s", o.err, want.state)
	}
	if want.state == ledger.Sent && !strings.Contains(fmt.Sprint(got.err), ErrHeld.Error()) {
		t.Errorf("the call's error is %v, want it to wrap ErrHeld", got.err)
	}
}

// replay plays the recorded answer to the same client, where no server is.
func replay(t *testing.T, f *fake, c client, want said, url string) {
	t.Helper()
	again := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
		return c.ask(ctx, a.HTTP(), url)
	})
	if again.err != nil || again.out != want {
		t.Errorf("played back: %+v, %v\nwant %+v", again.out, again.err, want)
	}
	if f.sends != 1 {
		t.Errorf("the gate was asked %d times", f.sends)
	}
}

// TestEvidence: ids and usage are on record, normalised, as the bill has them.
func TestEvidence(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for i, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{}
			got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				return c.ask(ctx, a.HTTP(), ms.URL())
			})
			if got.err != nil || !got.out.Complete {
				t.Fatalf("%+v, %v", got.out, got.err)
			}
			line, row := ms.Bill()[i], f.one(t)
			e := row.evidence
			if e.Status != 200 || e.ProviderRequestID != line.RequestID || e.ObjectID != line.ObjectID || row.ClientRequestID != line.ClientID {
				t.Errorf("on record: %d, %s, %s, %s; the bill says %+v", e.Status, e.ProviderRequestID, e.ObjectID, row.ClientRequestID, line)
			}
			if num(e.Usage.In) != line.In || num(e.Usage.Cached) != line.Cached || num(e.Usage.Out) != line.Out || line.In == 0 || line.Out == 0 {
				t.Errorf("usage on record: %d, %d, %d; the bill says %+v", num(e.Usage.In), num(e.Usage.Cached), num(e.Usage.Out), line)
			}
			if e.FirstByte <= 0 {
				t.Errorf("no time of the first byte: %s", e.FirstByte)
			}
		})
	}
}

func num(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

// TestPartialEvidence: of a stream that is cut, the id and what is known of the
// usage are on record.
func TestPartialEvidence(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range clients {
		if !c.stream {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ms.ScriptAny(modelserver.Fault{Kind: modelserver.Cut})
			f := &fake{}
			ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				return c.ask(ctx, a.HTTP(), ms.URL())
			})
			bill := ms.Bill()
			line, e := bill[len(bill)-1], f.one(t).evidence
			if e.ProviderRequestID != line.RequestID || e.ObjectID != line.ObjectID {
				t.Errorf("on record: %s, %s; the bill says %+v", e.ProviderRequestID, e.ObjectID, line)
			}
			if c.provider == "anthropic" && num(e.Usage.In) != line.In {
				t.Errorf("input tokens on record: %d, want %d of the first event", num(e.Usage.In), line.In)
			}
		})
	}
}
