package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

var (
	lookSQL = statement("look")
	sendSQL = statement("send")
)

// Look implements ledger.Ledger.
func (l *Ledger) Look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	if !storable(c.Name, c.InputKey) {
		return ledger.Looked{}, fmt.Errorf("%w: look: the call's name or input key is not UTF-8 without zero bytes", ledger.ErrRequest)
	}
	k, err := ask[struct {
		Fence    int64
		Late     int64
		Panics   int
		Attempts int
		Open     int
		ID       *[16]byte
		Route    *string
		Codec    *string
		Body     []byte
	}](ctx, l, lookSQL, lease.Key.Tenant, lease.Job, c.Name, c.InputKey)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && k.Fence != lease.Fence {
		return ledger.Looked{}, ledger.ErrLost
	}
	if err != nil {
		return ledger.Looked{}, fmt.Errorf("look for call %s of %s: %w", c.Name, lease.Key, err)
	}
	found := ledger.Looked{Attempts: k.Attempts, Open: k.Open, Late: k.Late}
	if k.ID != nil {
		found.Answer = &ledger.Captured{Attempt: *k.ID, Route: *k.Route, Panics: k.Panics,
			Response: ledger.Response{Codec: *k.Codec, Body: k.Body}}
	}
	return found, nil
}

// gateRow is the job row as the gate saw it, and what it did.
type gateRow struct {
	State     ledger.State
	Fence     int64
	OpenCalls int
	Cancel    bool
	Late      int64
	Cost      *ledger.Nano
	Reserved  ledger.Nano
	Budget    ledger.Nano
	Lapsed    bool
	Gated     bool
	Repeated  bool
}

// Send implements ledger.Ledger.
func (l *Ledger) Send(ctx context.Context, lease ledger.Lease, a ledger.Attempt) error {
	if err := a.Check(); err != nil {
		return err
	}
	g, err := again(ctx, fmt.Sprintf("gate attempt %s of %s", a.ID, lease.Key), func() (gateRow, error) {
		return ask[gateRow](ctx, l, sendSQL, lease.Key.Tenant, lease.Job, lease.Fence, [16]byte(a.ID),
			a.Call.Name, a.Call.InputKey, a.Route, a.Provider, a.Model, a.Config, a.ClientRequestID, a.Timeout, a.Reserve, a.LateSeen)
	})
	switch {
	case err == nil && g.Gated:
		return nil
	case err == nil && g.Repeated, sqlState(err) == "23505":
		return ledger.ErrRepeated
	case errors.Is(err, ledger.ErrNotFound):
		return ledger.ErrLost
	case err != nil:
		return err
	}
	return g.refusal(lease, a)
}

// refusal names the guard that closed the gate, by the table that the statement
// repeats.
func (g gateRow) refusal(lease ledger.Lease, a ledger.Attempt) error {
	guard := ledger.Row("J7").Allows(ledger.Facts{
		Exists: true, State: g.State, OpenCalls: g.OpenCalls, Cancel: g.Cancel, Lapsed: g.Lapsed,
		FenceHeld: g.Fence == lease.Fence, LateSeen: g.Late == a.LateSeen,
		InBudget: ledger.InBudget(g.Budget, g.Cost, g.Reserved, a.Reserve),
	})
	if guard == "" {
		return fmt.Errorf("gate attempt %s of %s: the statement refused what the table allows", a.ID, lease.Key)
	}
	return ledger.Refusal(guard)
}
