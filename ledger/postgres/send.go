package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	lookSQL  = statement("look")
	sendSQL  = statement("send")
	gatedSQL = statement("gated")
)

// lookedRow is what is known of a call.
type lookedRow struct {
	place
	Fence    int64
	Late     int64
	Panics   int
	Attempts int
	Open     int
	ID       *[16]byte // of the attempt that was captured first; nil: of none
	Route    *string
}

// callAsk names a call of a job.
type callAsk struct {
	lease ledger.Lease
	call  ledger.CallRef
}

// Look implements ledger.Ledger.
func (l *Ledger) Look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	if !storable(c.Name, c.InputKey) {
		return ledger.Looked{}, fmt.Errorf("%w: look: the call's name or input key is not UTF-8 without zero bytes", ledger.ErrRequest)
	}
	k, err := l.looks.do(ctx, &callAsk{lease, c})
	if errors.Is(err, ledger.ErrNotFound) || err == nil && k.Fence != lease.Fence {
		return ledger.Looked{}, ledger.ErrLost
	}
	if err != nil {
		return ledger.Looked{}, fmt.Errorf("look for call %s of %s: %w", c.Name, lease.Key, err)
	}
	found := ledger.Looked{Attempts: k.Attempts, Open: k.Open, Late: k.Late}
	if k.ID == nil {
		return found, nil
	}
	answer, err := on(ctx, l.lanes, func() (ledger.Response, error) {
		return captured(ctx, l.pool, ledger.AttemptID{Tenant: lease.Key.Tenant, Job: lease.Job, ID: *k.ID})
	})
	switch {
	case errors.Is(err, ledger.ErrNotFound): // it was purged
		return found, nil
	case err != nil:
		return ledger.Looked{}, fmt.Errorf("read the answer of call %s of %s: %w", c.Name, lease.Key, err)
	}
	found.Answer = &ledger.Captured{Attempt: *k.ID, Route: *k.Route, Panics: k.Panics, Response: answer}
	return found, nil
}

func (l *Ledger) look(ctx context.Context, asks []*callAsk) ([]lookedRow, error) {
	return many[lookedRow](ctx, l.pool, lookSQL,
		column(asks, func(a *callAsk) string { return a.lease.Key.Tenant }),
		column(asks, func(a *callAsk) int64 { return a.lease.Job }),
		column(asks, func(a *callAsk) string { return a.call.Name }),
		column(asks, func(a *callAsk) string { return a.call.InputKey }))
}

// gateRow is the job row as the gate saw it, and what it did.
type gateRow struct {
	place
	State      ledger.State
	Fence      int64
	OpenCalls  int
	Cancel     bool
	Late       int64
	Cost       *ledger.Nano
	Reserved   ledger.Nano
	Budget     ledger.Nano
	Lapsed     bool
	CallsLeft  bool
	InLifetime bool
	Gated      bool
}

// gateAsk is an attempt that wants to be sent.
type gateAsk struct {
	lease   ledger.Lease
	attempt ledger.Attempt
}

func (a *gateAsk) String() string {
	return fmt.Sprintf("gate attempt %s of %s", a.attempt.ID, a.lease.Key)
}

// Send implements ledger.Ledger.
func (l *Ledger) Send(ctx context.Context, lease ledger.Lease, a ledger.Attempt) error {
	if err := a.Check(); err != nil {
		return err
	}
	gate := &gateAsk{lease, a}
	g, err := again(ctx, gate, func() (*limitedRow, error) {
		if a.Day != (ledger.DayLimits{}) {
			return l.limited.do(ctx, gate)
		}
		row, err := l.gates.do(ctx, gate)
		if err != nil {
			return nil, err
		}
		return &limitedRow{gateRow: *row}, nil
	})
	switch {
	case err == nil && g.Gated:
		return nil
	case sqlState(err) == "23505":
		return ledger.ErrRepeated
	case errors.Is(err, ledger.ErrNotFound):
		return ledger.ErrLost
	case sqlState(err) == overDay:
		return ledger.ErrDayBudget
	case err != nil:
		return err
	}
	// What is refused is seldom asked again, so the statement does not look for it.
	switch before, err := ask[struct{ Found bool }](ctx, l, gatedSQL, lease.Key.Tenant, lease.Job, [16]byte(a.ID)); {
	case err != nil:
		return fmt.Errorf("look for attempt %s of %s: %w", a.ID, lease.Key, err)
	case before.Found:
		return ledger.ErrRepeated
	}
	return g.refusal(lease, &a)
}

func (l *Ledger) gate(ctx context.Context, asks []*gateAsk) ([]gateRow, error) {
	return end[gateRow](ctx, l.pool, pipeline(len(asks)), sendSQL, gateArguments(asks)...)
}

// gateArguments are those of both statements, the jobs first.
func gateArguments(asks []*gateAsk) []any {
	text := func(of func(*ledger.Attempt) string) list[string] {
		return column(asks, func(a *gateAsk) string { return of(&a.attempt) })
	}
	return []any{
		column(asks, func(a *gateAsk) string { return a.lease.Key.Tenant }),
		column(asks, func(a *gateAsk) int64 { return a.lease.Job }),
		column(asks, func(a *gateAsk) int64 { return a.lease.Fence }),
		column(asks, func(a *gateAsk) [16]byte { return a.attempt.ID }),
		text(func(a *ledger.Attempt) string { return a.Call.Name }),
		text(func(a *ledger.Attempt) string { return a.Call.InputKey }),
		text(func(a *ledger.Attempt) string { return a.Route }),
		text(func(a *ledger.Attempt) string { return a.Provider }),
		text(func(a *ledger.Attempt) string { return a.Model }),
		text(func(a *ledger.Attempt) string { return a.Config }),
		text(func(a *ledger.Attempt) string { return a.ClientRequestID }),
		column(asks, func(a *gateAsk) time.Duration { return a.attempt.Timeout }),
		column(asks, func(a *gateAsk) ledger.Nano { return a.attempt.Reserve }),
		column(asks, func(a *gateAsk) int64 { return a.attempt.LateSeen }),
	}
}

// refusal names the guard that closed the gate, by the table that the statement
// repeats.
func (g *limitedRow) refusal(lease ledger.Lease, a *ledger.Attempt) error {
	guard := ledger.Row("J7").Allows(ledger.Facts{
		Exists: true, State: g.State, OpenCalls: g.OpenCalls, Cancel: g.Cancel, Lapsed: g.Lapsed,
		FenceHeld: g.Fence == lease.Fence, LateSeen: g.Late == a.LateSeen,
		CallsLeft: g.CallsLeft, InLifetime: g.InLifetime,
		InBudget: ledger.InBudget(g.Budget, g.Cost, g.Reserved, a.Reserve), OverDay: g.Over,
	})
	if guard == "" {
		return fmt.Errorf("gate attempt %s of %s: the statement refused what the table allows", a.ID, lease.Key)
	}
	return ledger.Refusal(guard)
}
