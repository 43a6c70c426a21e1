package ledgertest

import (
	"bytes"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

func inputKept(e *env) {
	for name, size := range map[string]int{"empty": 0, "small": 1, "limit": ledger.InlineInput, "none": -1} {
		r := e.request(name)
		r.Input = nil
		if size >= 0 {
			r.Input = bytes.Repeat([]byte{0xff}, size)
		}
		j := e.start(r)
		kept := name != "none"
		if got := e.read(j.key).InputKept; got != kept {
			e.Errorf("input of %d bytes kept: %v, want %v", size, got, kept)
		}
		want := ledger.ErrNoInput
		if kept {
			want = nil
		}
		e.is("carry with input "+name, e.Store.Carry(e.Context(), j.lease), want)
		j.release(outcome(), ledger.Ready)
		due, err := e.Store.Due(e.Context(), 10, long)
		e.is("due", err, nil)
		switch {
		case kept && (len(due) != 1 || due[0].Key != r.Key || due[0].Action != r.Action || due[0].InputHash != r.InputHash || !bytes.Equal(due[0].Input, r.Input)):
			e.Errorf("input %s: the ledger would run %+v", name, due)
		case !kept && len(due) != 0:
			e.Errorf("input %s: the ledger would run a job without its input: %+v", name, due)
		}
		j.again()
		j.complete()
	}
}

func carrierStays(e *env) {
	r := e.request("ledger")
	r.Carrier = ledger.CarriedByLedger
	j := e.start(r)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Carrier: ledger.CarriedByLedger})
	j.release(outcome(), ledger.Ready)
	j.req.Carrier = ledger.CarriedByBroker // its message comes once more
	j.again()
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Error: "retry", Carrier: ledger.CarriedByLedger})

	j = e.run("swept")
	j.release(outcome(), ledger.Ready)
	j.req.Carrier = ledger.CarriedByLedger // found by the net: no message is held for this run
	j.again()
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Error: "retry", Carrier: ledger.CarriedByLedger})

	r = e.request("no input")
	r.Carrier, r.Input = ledger.CarriedByLedger, nil
	j = e.start(r)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
}

func receives(e *env) {
	r := e.request("a")
	r.Receives = 3
	j := e.start(r)
	for _, n := range []int{7, 2} {
		j.release(outcome(), ledger.Ready)
		j.req.Receives = n
		j.again()
	}
	j.row(row{State: ledger.Running, Runs: 3, Fence: 3, Error: "retry", Receives: 7})
}

func latestBudget(e *env) {
	r := e.request("a")
	r.Budget = cent / 2
	j := e.start(r)
	e.is("send", e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrBudget)
	j.release(outcome(), ledger.Ready)
	j.req.Budget = cent
	j.again()
	j.send("extract")
	if b := e.read(j.key).Budget; b != cent {
		e.Errorf("budget %s, want %s", b, cent)
	}
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Open: 1, Reserved: "0.01", Error: "retry", Attempts: "sent"})
}

func invalidClaims(e *env) {
	for name, spoil := range map[string]func(*ledger.Request){
		"no tenant":       func(r *ledger.Request) { r.Key.Tenant = "" },
		"no key":          func(r *ledger.Request) { r.Key.Text = "" },
		"no action":       func(r *ledger.Request) { r.Action = "" },
		"no worker":       func(r *ledger.Request) { r.Worker.ID = "" },
		"no token":        func(r *ledger.Request) { r.Token = ledger.ID{} },
		"no deadline":     func(r *ledger.Request) { r.MaxRun = 0 },
		"a past deadline": func(r *ledger.Request) { r.MaxRun = -1 },
		"zero in tenant":  func(r *ledger.Request) { r.Key.Tenant = "ac\x00me" },
		"zero in key":     func(r *ledger.Request) { r.Key.Text += "\x00" },
		"zero in action":  func(r *ledger.Request) { r.Action = "\x00" },
		"key not UTF-8":   func(r *ledger.Request) { r.Key.Text += "\xff" },
		"huge key":        func(r *ledger.Request) { r.Key.Text = strings.Repeat("k", ledger.MaxText+1) },
	} {
		r := e.request("a")
		spoil(&r)
		_, err := e.Store.Claim(e.Context(), r)
		e.is(name, err, ledger.ErrRequest)
	}
	for j, err := range e.Store.Jobs(e.Context(), ledger.Filter{}) {
		e.Errorf("an invalid claim left a row: %v %v", j, err)
	}
}
