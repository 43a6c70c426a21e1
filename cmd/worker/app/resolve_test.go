package app

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
)

// contended is a ledger in which something happens just before each verdict of a person.
type contended struct {
	*ledgermemory.Ledger
	before func()
}

func (c contended) Resolve(ctx context.Context, r ledger.Resolution) (ledger.Released, error) {
	c.before()
	return c.Ledger.Resolve(ctx, r)
}

// TestGiveUpBesideAReconciler: that a reconciler takes the job up to look for evidence changes
// nothing that a person decided by; evidence does.
func TestGiveUpBesideAReconciler(t *testing.T) {
	for name, c := range map[string]struct {
		looks    int  // of reconcilers, one before each try
		evidence bool // on the first call
		calls    int
		state    ledger.State
	}{
		"two looks":            {2, false, 1, ledger.Failed},
		"looks without end":    {100, false, 1, ledger.Unknown},
		"a look and an answer": {1, true, 1, ledger.Ready},
		"one answer of two":    {1, true, 2, ledger.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, l := t.Context(), ledgermemory.New()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			w, err := l.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
			must(err)
			k := ledger.Key{Tenant: "acme", Text: "acme:a:1"}
			claimed, err := l.Claim(ctx, ledger.Request{Key: k, Action: "a", Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
			must(err)
			a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Route: "r", Provider: "p", Model: "m", Timeout: time.Minute}
			must(l.Send(ctx, claimed.Lease, a))
			if c.calls == 2 {
				b := a
				b.ID, b.Call.Name = ledger.NewID(), "d"
				must(l.Send(ctx, claimed.Lease, b))
			}
			_, err = l.Release(ctx, claimed.Lease, ledger.Outcome{})
			must(err)
			j, err := l.Job(ctx, k)
			must(err)

			looks := 0
			s := contended{l, func() {
				if looks++; looks > c.looks {
					return
				}
				now, err := l.Job(ctx, k)
				must(err)
				_, err = l.Resolve(ctx, ledger.Resolution{Key: k, Fence: now.Fence, Action: ledger.Keep, By: ledger.ByReconciler})
				must(err)
				_, err = l.Adopt(ctx, ledger.Adoption{Worker: w, Token: ledger.NewID(), Max: 10})
				must(err)
				if c.evidence {
					_, err = l.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, ledger.Evidence{State: ledger.Received, By: ledger.BySender,
						Response: &ledger.Response{Codec: "json", Body: []byte("1")}})
					must(err)
				}
			}}
			var out bytes.Buffer
			err = resolveCommand{Key: k.Text, Reason: "x"}.giveUp(ctx, &call{Process: Process{Stdout: &out}}, s, j)
			if (err == nil) != (c.state == ledger.Failed) || err != nil && !strings.Contains(err.Error(), "PO503") {
				t.Errorf("%v\n%s", err, &out)
			}
			if now, err := l.Job(ctx, k); err != nil || now.State != c.state {
				t.Errorf("the job is %s, want %s; %v", now.State, c.state, err)
			}
		})
	}
}

// TestUnknownList: what nobody knows is listed with what is at risk, and decided together.
func TestUnknownList(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	if out := w.must("", "unknown", "list"); out != "no unknown jobs\n" {
		t.Errorf("without any it says\n%s", out)
	}
	ctx := t.Context()
	keys := map[string]string{"acme:ticket.summary:1:v1:p7": "acme", "acme:ticket.summary:2:v1:p7": "acme", "globex:ticket.summary:3:v1:p7": "globex"}
	for text, tenant := range keys {
		lease := w.claimed(ledger.Key{Tenant: tenant, Text: text})
		a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "summarise"}, Provider: "openai", Model: "gpt-5-mini", ClientRequestID: "c-" + tenant, Timeout: 1e9, Reserve: 2_000_000}
		if err := w.ledger.Send(ctx, lease, a); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ledger.Release(ctx, lease, ledger.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	var doc unknownDocument
	if err := json.Unmarshal([]byte(w.must("", "unknown", "list", "--tenant", "acme", "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if s := doc.Summary; s.Jobs != 2 || s.Calls != 2 || s.ReservedUSD != "0.004" || len(doc.Unknown) != 2 || doc.Unknown[0].Calls[0].ClientRequestID != "c-acme" || doc.Unknown[0].Since == nil {
		t.Errorf("listed %+v", doc)
	}
	for _, args := range [][]string{{"--older-than", "1h"}, {"--job", "other"}} {
		if out := w.must("", append([]string{"unknown", "list"}, args...)...); out != "no unknown jobs\n" {
			t.Errorf("%v lists\n%s", args, out)
		}
	}
	if out := w.must("", "unknown", "list"); !strings.Contains(out, "3 jobs with 3 calls that may have been paid, $0.006 at most") || !strings.Contains(out, "client request c-globex") {
		t.Errorf("the list is\n%s", out)
	}

	reason := []string{"--absent", "--reason", "asked the provider"}
	for what, args := range map[string][]string{"name a key": {}, "not both": {"acme:ticket.summary:1:v1:p7", "--all"}, "--dry-run is for more": {"acme:ticket.summary:1:v1:p7", "--dry-run"},
		"--limit 0": {"--all", "--limit", "0"}, "--older-than": {"--older-than=-1h"}} {
		w.refused(exitUsage, "", append(append([]string{"jobs", "resolve"}, args...), reason...), "PO502", what)
	}
	w.refused(exitUsage, "{}", []string{"jobs", "resolve", "--all", "--result", "-", "--reason", "x"}, "PO502", "answers one call of one job")
	if out := w.must("", append([]string{"jobs", "resolve", "--tenant", "acme", "--dry-run"}, reason...)...); !strings.Contains(out, "Nothing is changed") || !strings.Contains(out, "2 jobs with 2 calls") {
		t.Errorf("the dry run says\n%s", out)
	}
	if out := w.must("", append([]string{"jobs", "resolve", "--tenant", "acme"}, reason...)...); !strings.Contains(out, "2 unknown jobs resolved, 0 left") {
		t.Errorf("resolve says\n%s", out)
	}
	for text, tenant := range keys {
		if want := map[string]string{"acme": "ready", "globex": "unknown"}[tenant]; w.state(text) != want {
			t.Errorf("%s is %s, want %s", text, w.state(text), want)
		}
	}
	w.must("", "jobs", "resolve", "--all", "--fail", "--reason", "x")
	if s := w.state("globex:ticket.summary:3:v1:p7"); s != "failed" {
		t.Errorf("the last one is %s", s)
	}
}
