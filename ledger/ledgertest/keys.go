package ledgertest

import (
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// keyCases: one key, one job; two keys, two jobs.
var keyCases = []testCase{
	{"hostile keys", "two keys are one job, or a key breaks out of its statement", hostileKeys},
	{"tenants", "one customer gets, or changes, another one's job", tenants},
	{"leases name their tenant", "a lease of one tenant changes a job of another", foreignLease},
}

func hostileKeys(e *env) {
	texts := []string{
		`'`, `''`, `"`, `\`, `\\`, `%`, `%%`, `_`, `%s`, `$1`, `?`, `:name`, `;`, `--`, `/*`, `*/`, `'; DROP TABLE job; --`,
		` `, `  `, "\t", "\n", "\r\n", "\u00a0", "\u2028", "\ufeff", `{`, `{}`, `{a,b}`, `(a,b)`, `NULL`, `null`, `\N`, `\x00`, `\u0000`,
		`a`, `A`, `a `, ` a`, "e\u0301", "\u00e9", `ß`, `ss`, `İ`, `i`, `ı`, "\U0001F44B\U0001F3FD", "\U0001F44B", "世界", "\u202eabc", "\x01", "\x7f",
		`a:b`, `a::b`, `:a`, `a:`, strings.Repeat("k", ledger.MaxText), strings.Repeat("k", ledger.MaxText-1), strings.Repeat("界", ledger.MaxText/3),
	}
	var js []*job
	for _, text := range texts {
		r := e.request("a")
		r.Key.Text = text
		c := e.claim(r)
		if c.Verdict != ledger.Run || c.Run != 1 {
			e.Errorf("key %q: %s, run %d: taken for another key", text, c.Verdict, c.Run)
			continue
		}
		js = append(js, &job{env: e, key: r.Key, req: r, lease: c.Lease})
	}
	for _, j := range js {
		id := j.send("extract")
		j.settle(id, answer(cent))
		j.complete(id)
	}
	for _, j := range js {
		if got := e.read(j.key); got.Key != j.key || got.ID != j.lease.Job {
			e.Errorf("key %q reads as %q of row %d, want row %d", j.key.Text, got.Key.Text, got.ID, j.lease.Job)
		}
		j.verdict(ledger.Saved)
		j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01"})
	}
}

func tenants(e *env) {
	var js []*job
	for _, who := range []string{"acme", "Acme", "acme ", "globex", `'`, `%`, "界"} {
		r := e.request("same")
		r.Key.Tenant = who
		r.Key.Text = "same text"
		js = append(js, e.start(r))
	}
	for i, j := range js {
		if i%2 == 0 {
			id := j.send("extract")
			j.settle(id, answer(cent))
			j.complete(id)
		}
	}
	for i, j := range js {
		if i%2 == 0 {
			j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01"})
			j.verdict(ledger.Saved)
		} else {
			j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
			j.verdict(ledger.Busy)
		}
	}
	e.absent(ledger.Key{Tenant: "nobody", Text: "same text"})
}

func foreignLease(e *env) {
	j := e.run("a")
	id := j.send("extract")
	foreign := j.lease
	foreign.Key.Tenant = "globex"
	nowhere := j.lease
	nowhere.Job += 1000
	for what, l := range map[string]ledger.Lease{"another tenant": foreign, "no row": nowhere} {
		j.unchanged("a lease of "+what, func() {
			_, err := e.Store.Look(e.Context(), l, ledger.CallRef{Name: "extract"})
			e.is("look", err, ledger.ErrLost)
			e.is("send", e.Store.Send(e.Context(), l, call("extract")), ledger.ErrLost)
			e.is("complete", e.Store.Complete(e.Context(), l, ledger.Result{ID: ledger.NewID()}), ledger.ErrLost)
			_, err = e.Store.Release(e.Context(), l, outcome())
			e.is("release", err, ledger.ErrLost)
			e.is("carry", e.Store.Carry(e.Context(), l), ledger.ErrLost)
			e.is("replay", e.Store.Replay(e.Context(), l, ledger.ReplayPolicy{Max: 1, Who: "w1"}), ledger.ErrLost)
		})
	}
	for what, bad := range map[string]ledger.AttemptID{
		"another tenant": {Tenant: "globex", Job: id.Job, ID: id.ID},
		"another job":    {Tenant: id.Tenant, Job: id.Job + 1000, ID: id.ID},
		"another id":     {Tenant: id.Tenant, Job: id.Job, ID: ledger.NewID()},
	} {
		j.unchanged("an attempt of "+what, func() {
			for _, s := range []ledger.AttemptState{ledger.Received, ledger.NotSent, ledger.Sent} {
				ev := answer(cent)
				ev.State = s
				_, err := e.Store.Settle(e.Context(), bad, ev)
				e.is("settle as "+string(s)+" an attempt of "+what, err, ledger.ErrNotFound)
			}
		})
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
}
