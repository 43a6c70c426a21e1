package postgres

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	claimReadSQL   = statement("claim_read")
	claimInsertSQL = statement("claim_insert")
	claimTakeSQL   = statement("claim_take")
)

// claimRow is a job as a claim sees it, times as what is left of them.
type claimRow struct {
	ID         int64
	Action     string
	InputHash  []byte
	State      ledger.State
	Fence      int64
	Generation int
	Carrier    ledger.Carrier
	Runs       int
	OpenCalls  int
	Cancel     bool
	Cost       *ledger.Nano
	ErrorClass *string
	ErrorText  *string
	Mine       bool // by the claim token
	Lapsed     bool
	RunLeft    time.Duration
	LeaseLeft  time.Duration
	DueIn      time.Duration
	ResultID   *[16]byte
	Body       []byte
	SchemaName *string
	Rule       string // the transition that was made; "": none; "closed": the asker's epoch is
}

// Claim implements ledger.Ledger.
func (l *Ledger) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	if err := r.Check(); err != nil {
		return ledger.Claimed{}, err
	}
	return again(ctx, "claim "+r.Key.Text, func() (ledger.Claimed, error) {
		return on(ctx, l.lanes, func() (ledger.Claimed, error) { return l.claim(ctx, r) })
	})
}

// claim asks in the order of what is most likely and cheapest: a read, which ends
// duplicates; an insert, for keys not seen; a read again, for those who lost the
// race; and the locked update for a row that is there and may be had.
func (l *Ledger) claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	asked := time.Now()
	row, err := one[claimRow](ctx, l.pool, claimReadSQL, r.Key.Tenant, r.Key.Text, [16]byte(r.Token))
	if err == ledger.ErrNotFound {
		var id int64
		if id, err = l.insert(ctx, r); err != nil {
			return ledger.Claimed{}, err
		}
		if id != 0 {
			row = claimRow{ID: id, Fence: 1, Runs: 1, Generation: 1, Carrier: carrier(r), RunLeft: r.MaxRun}
			return row.running(r.Key, asked), nil
		}
		asked = time.Now()
		row, err = one[claimRow](ctx, l.pool, claimReadSQL, r.Key.Tenant, r.Key.Text, [16]byte(r.Token))
	}
	if err != nil {
		return ledger.Claimed{}, err
	}
	if !row.takeable(r) {
		return row.answer(r, asked), nil
	}
	asked = time.Now()
	taken, err := one[claimRow](ctx, l.pool, claimTakeSQL, r.Key.Tenant, r.Key.Text, [16]byte(r.Token), r.Action, r.InputHash[:],
		r.Worker.ID, r.Worker.Epoch, r.MaxRun, r.MaxRuns, r.Receives, r.Budget, r.Carrier)
	switch {
	case err == ledger.ErrNotFound: // somebody holds the row locked
		return ledger.Claimed{Verdict: ledger.Busy, Generation: row.Generation, Carrier: row.Carrier, RetryIn: time.Second}, nil
	case err != nil:
		return ledger.Claimed{}, err
	case taken.Rule == "closed":
		return ledger.Claimed{}, ledger.ErrClosed
	}
	return taken.answer(r, asked), nil
}

// insert makes the row of a key that nobody has seen and returns its id, or 0 when
// somebody was first.
func (l *Ledger) insert(ctx context.Context, r ledger.Request) (int64, error) {
	ins, err := one[struct {
		ID   *int64
		Open bool
	}](ctx, l.pool, claimInsertSQL, r.Key.Tenant, r.Key.Text, [16]byte(r.Token), r.Action, r.InputHash[:],
		keptInput(r), carrier(r), r.Worker.ID, r.Worker.Epoch, r.MaxRun, r.Budget, r.Receives, origin(r))
	switch {
	case err != nil:
		return 0, err
	case !ins.Open:
		return 0, ledger.ErrClosed
	case ins.ID == nil:
		return 0, nil
	}
	return *ins.ID, nil
}

// keptInput is the part of a request's input that the ledger keeps: all or nothing.
func keptInput(r ledger.Request) []byte {
	if len(r.Input) > ledger.InlineInput {
		return nil
	}
	return r.Input
}

// origin is what the ledger keeps of a request's origin: null for none.
func origin(r ledger.Request) *ledger.Origin {
	o := r.Origin.Clean()
	if o.IsZero() {
		return nil
	}
	return &o
}

// carrier of a new row: the ledger carries only what it can run.
func carrier(r ledger.Request) ledger.Carrier {
	if r.Carrier == ledger.CarriedByLedger && keptInput(r) != nil {
		return ledger.CarriedByLedger
	}
	return ledger.CarriedByBroker
}

// takeable reports whether a locked look is worth its while: claim_take.sql decides.
func (c claimRow) takeable(r ledger.Request) bool {
	if !c.same(r) {
		return false
	}
	switch c.State {
	case ledger.Ready:
		return c.DueIn <= 0
	case ledger.Running:
		return c.Lapsed && !c.Mine
	}
	return false
}

func (c claimRow) same(r ledger.Request) bool {
	return c.Action == r.Action && ledger.Hash(c.InputHash) == r.InputHash
}

// running answers the claim that owns the row. The deadline is counted from before the
// ledger was asked: never later than the ledger's own.
func (c claimRow) running(k ledger.Key, asked time.Time) ledger.Claimed {
	return ledger.Claimed{Verdict: ledger.Run, Run: c.Runs, Generation: c.Generation, Carrier: c.Carrier,
		Lease: ledger.Lease{Key: k, Job: c.ID, Fence: c.Fence, Deadline: asked.Add(c.RunLeft)}}
}

// answer says what the row is to the asker.
func (c claimRow) answer(r ledger.Request, asked time.Time) ledger.Claimed {
	a := ledger.Claimed{Generation: c.Generation, Carrier: c.Carrier}
	switch {
	case !c.same(r):
		a.Verdict, a.Stored = ledger.Mismatch, &ledger.Identity{Action: c.Action, InputHash: ledger.Hash(c.InputHash)}
	case c.State == ledger.Running && c.Mine:
		return c.running(r.Key, asked)
	case c.State == ledger.Done && c.ResultID == nil:
		a.Verdict, a.Cost = ledger.Purged, c.Cost
	case c.State == ledger.Done:
		a.Verdict, a.Cost = ledger.Saved, c.Cost
		a.Result = &ledger.Result{ID: *c.ResultID, Body: c.Body, Schema: *c.SchemaName}
	case c.State == ledger.Failed:
		a.Verdict, a.Error = ledger.HasFailed, jobError(c.ErrorClass, c.ErrorText)
	case c.State == ledger.Cancelled:
		a.Verdict = ledger.IsCancelled
	case c.State == ledger.Unknown:
		a.Verdict, a.RetryIn = ledger.HeldUnknown, max(0, c.DueIn)
	case c.State == ledger.Ready:
		a.Verdict, a.RetryIn = ledger.NotDue, max(0, c.DueIn)
	default:
		a.Verdict, a.RetryIn = ledger.Busy, max(0, c.LeaseLeft)
	}
	return a
}

func jobError(class, text *string) *ledger.JobError {
	if class == nil || text == nil {
		return nil
	}
	return &ledger.JobError{Class: *class, Text: *text}
}
