package sealed

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/memory"
)

// secret is a key in base64, all of one byte.
func secret(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, KeySize))
}

func keys(t *testing.T, text string) *Keys {
	t.Helper()
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestLedger: a sealed ledger is a ledger.
func TestLedger(t *testing.T) {
	for name, text := range map[string]string{"with a key": "k1:" + secret(1), "without": ""} {
		t.Run(name, func(t *testing.T) {
			ledgertest.Run(t, func(t *testing.T) *ledgertest.Harness {
				h := ledgertest.Memory(t)
				h.Store, h.Seeds = Wrap(h.Store, keys(t, text)), 20
				if text != "" {
					h.Room = ledger.WrapRoom
				}
				return h
			})
		})
	}
}

func TestParseKeys(t *testing.T) {
	k := keys(t, "# new first\nk2:"+secret(2)+"\n\n k1:"+secret(1)+" , k0:"+secret(0)+"\n")
	if ids := k.IDs(); len(ids) != 3 || ids[0] != "k2" {
		t.Errorf("ids %v", ids)
	}
	for _, text := range []string{secret(7), ":" + secret(7), "a b:" + secret(7), "k1:" + secret(7)[:40], "k1:" + secret(7) + ",k1:" + secret(8),
		"k1:" + base64.StdEncoding.EncodeToString([]byte("hunter2 is too short")), "k1:hunter2"} {
		_, err := ParseKeys(text)
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), secret(7)[:10]) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.10q…: %v", text, err)
		}
	}
}

// TestGolden: what is in ledgers must open for ever, and be sealed again as it is.
func TestGolden(t *testing.T) {
	k, at := keys(t, "k1:"+secret(1)), inputPlace(ledger.Key{Tenant: "acme", Text: "acme:a:1"}, ledger.Hash{1})
	got := hex.EncodeToString(k.seal(at, []byte(`{"a":1}`)))
	if got != golden {
		t.Errorf("sealed as\n%s, want\n%s", got, golden)
	}
	stored, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := k.open(at, stored); err != nil || string(body) != `{"a":1}` {
		t.Errorf("opens as %q, %v", body, err)
	}
}

// TestOpen: a body opens in its own place alone, unchanged, with its own key, whichever that is now.
func TestOpen(t *testing.T) {
	old, both := keys(t, "k1:"+secret(1)), keys(t, "k2:"+secret(2)+",k1:"+secret(1))
	id, other := ledger.NewID(), ledger.NewID()
	key := ledger.Key{Tenant: "acme", Text: "acme:a:1"}
	at, body := answerPlace("acme", 1, id, "http"), []byte("the answer to a question of some length")
	stored := old.seal(at, body)
	if bytes.Contains(stored, body[:8]) {
		t.Error("it is not sealed")
	}
	if !bytes.Equal(stored, old.seal(at, body)) {
		t.Error("sealed again it is another body: each try of a write would be stored beside the last")
	}
	head := len(mark) + 1 + len("k1") + checkSize
	if another := old.seal(at, []byte("another answer")); bytes.Equal(another[head:head+12], stored[head:head+12]) {
		t.Error("two bodies share a nonce")
	}
	for _, k := range []*Keys{old, both} {
		if got, err := k.open(at, stored); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%v: opens as %q, %v", k.IDs(), got, err)
		}
	}
	if got, err := both.open(at, body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("what was never sealed reads as %q, %v", got, err)
	}
	for name, p := range map[string]place{
		"tenant": answerPlace("beta", 1, id, "http"), "job": answerPlace("acme", 2, id, "http"), "attempt": answerPlace("acme", 1, other, "http"),
		"codec": answerPlace("acme", 1, id, "json"), "kind": resultPlace(key, id), "key": inputPlace(key, ledger.Hash{}),
	} {
		if got, err := old.open(p, stored); !errors.Is(err, ledger.ErrDamaged) || got != nil {
			t.Errorf("another %s: %q, %v", name, got, err)
		}
	}
	for i := range stored {
		if i < len(mark) {
			continue // not sealed then, whatever it is
		}
		bad := bytes.Clone(stored)
		bad[i] ^= 1
		if got, err := old.open(at, bad); !errors.Is(err, ledger.ErrDamaged) && !errors.Is(err, ErrKey) || got != nil {
			t.Errorf("byte %d changed: %q, %v", i, got, err)
		}
		if got, err := old.open(at, stored[:i]); err == nil || got != nil {
			t.Errorf("cut to %d bytes: %q, %v", i, got, err)
		}
	}
	if got, err := keys(t, "k1:"+secret(2)).open(at, stored); !errors.Is(err, ErrKey) || errors.Is(err, ledger.ErrDamaged) || got != nil {
		t.Errorf("another secret under the same id: %q, %v; it must not pass for damage, which fails jobs", got, err)
	}
	for _, k := range []*Keys{keys(t, ""), keys(t, "k2:"+secret(2))} {
		if _, err := k.open(at, stored); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "its key is k1") {
			t.Errorf("without its key: %v", err)
		}
	}
}

// TestRotation: jobs that began under an old key go on under a new one; without the old one nothing
// is told, and duplicates are still answered.
func TestRotation(t *testing.T) {
	l := memory.New()
	ctx := t.Context()
	at := func(text string) *Store { return Wrap(l, keys(t, text)) }
	first, second, none := at("k1:"+secret(1)), at("k2:"+secret(2)+",k1:"+secret(1)), at("")
	w, err := first.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:a:1"}, Action: "a", Input: []byte(`{"a":1}`), Worker: w,
		Token: ledger.NewID(), MaxRun: time.Hour, Carrier: ledger.CarriedByLedger}
	c, err := first.Claim(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Release(ctx, c.Lease, ledger.Outcome{GiveBack: true}); err != nil {
		t.Fatal(err)
	}
	if raw, err := l.Due(ctx, 1, time.Hour); err != nil || len(raw) != 1 || bytes.Contains(raw[0].Input, []byte("a")) && string(raw[0].Input) == `{"a":1}` {
		t.Errorf("the ledger itself has the input %+v, %v", raw, err)
	}
	if due, err := none.Due(ctx, 1, time.Hour); err != nil || len(due) != 1 || !errors.Is(due[0].Fault, ErrKey) || due[0].Input != nil {
		t.Errorf("without keys: %+v, %v", due, err)
	}
	if due, err := second.Due(ctx, 1, time.Hour); err != nil || len(due) != 1 || string(due[0].Input) != `{"a":1}` {
		t.Errorf("with a new key first: %+v, %v", due, err)
	}
	r.Token = ledger.NewID()
	if c, err = second.Claim(ctx, r); err != nil || c.Verdict != ledger.Run {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	step := ledger.StepAsk{Key: ledger.Key{Tenant: "acme", Text: "acme:mail:1"}, Action: "mail", Input: []byte(`{"to":"kim"}`)}
	steps, messages := []ledger.StepAsk{step}, []ledger.MessageAsk{{Action: "next", Body: []byte("to kim")}}
	if err := second.Complete(ctx, c.Lease, ledger.Result{ID: ledger.NewID(), Body: []byte(`"secret"`), Steps: steps, Messages: messages}); err != nil || string(steps[0].Input) != string(step.Input) || string(messages[0].Body) != "to kim" {
		t.Fatalf("complete: %v; the caller's own step has the input %q", err, steps[0].Input)
	}
	l.AgeMessages(time.Hour)
	if raw, err := l.TakeMessages(ctx, 1, 0); err != nil || len(raw) != 1 || bytes.Contains(raw[0].Body, []byte("kim")) {
		t.Errorf("the ledger itself has the message %+v, %v", raw, err)
	}
	if ms, err := first.TakeMessages(ctx, 1, 0); err != nil || len(ms) != 1 || !errors.Is(ms[0].Fault, ErrKey) || ms[0].Body != nil {
		t.Errorf("the message without its key: %+v, %v", ms, err)
	}
	if ms, err := second.TakeMessages(ctx, 1, 0); err != nil || len(ms) != 1 || string(ms[0].Body) != "to kim" {
		t.Errorf("the message: %+v, %v", ms, err)
	}
	if raw, err := l.Due(ctx, 1, time.Hour); err != nil || len(raw) != 1 || bytes.Contains(raw[0].Input, []byte("kim")) {
		t.Errorf("the ledger itself has the step %+v, %v", raw, err)
	}
	if due, err := second.Due(ctx, 1, time.Hour); err != nil || len(due) != 1 || string(due[0].Input) != string(step.Input) {
		t.Errorf("the step: %+v, %v", due, err)
	}
	if j, err := second.Job(ctx, r.Key); err != nil || string(j.Result.Body) != `"secret"` {
		t.Errorf("with the new key: %+v, %v", j.Result, err)
	}
	if j, err := first.Job(ctx, r.Key); !errors.Is(err, ErrKey) || j.Result != nil {
		t.Errorf("with the old key alone: %+v, %v", j.Result, err)
	}
	r.Token = ledger.NewID()
	if c, err := first.Claim(ctx, r); err != nil || c.Verdict != ledger.Saved || c.Result.Body != nil {
		t.Errorf("a duplicate: %+v, %v", c, err)
	}
}

const golden = "00504f5345414c01026b31dc37fd30d91fa5e41555a4fec671a3d223f4fe251f5155c489fbb002e6c89c2d0ef54c3e7db3be"

// What goes past the ledger in a program's own transaction is sealed before, through whatever wraps the ledger, and
// opens as what went by the ledger does.
func TestSealedSubmission(t *testing.T) {
	inner := memory.New()
	store := struct{ ledger.Store }{Wrap(inner, keys(t, "k1:"+secret(1)))}
	plain := ledger.Submission{Key: ledger.Key{Tenant: "acme", Text: "acme:order:1"}, Action: "order", InputHash: ledger.Hash{1}, Input: []byte(`{"card":"4111"}`)}
	if _, err := inner.Submit(t.Context(), store.Seal(plain)); err != nil {
		t.Fatal(err)
	}
	stored, err := inner.Due(t.Context(), 1, time.Hour)
	if err != nil || len(stored) != 1 || bytes.Contains(stored[0].Input, []byte("4111")) {
		t.Errorf("the ledger holds %q, %v", stored, err)
	}
	due, err := store.Due(t.Context(), 1, time.Hour)
	if err != nil || len(due) != 1 || due[0].Fault != nil || !bytes.Equal(due[0].Input, plain.Input) {
		t.Errorf("the workers would run %+v, %v", due, err)
	}
	if found, err := store.Submit(t.Context(), plain); err != nil || found[0].New || found[0].Other {
		t.Errorf("submitted again: %+v, %v", found, err)
	}
}
