package postgres

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	claimReadSQL    = statement("claim_read")
	claimVerdictSQL = statement("claim_verdict")
	claimInsertSQL  = statement("claim_insert")
	claimTakeSQL    = statement("claim_take")
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

// readRow is one of many.
type readRow struct {
	place
	claimRow
}

// Claim implements ledger.Ledger.
func (l *Ledger) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	if err := r.Check(); err != nil {
		return ledger.Claimed{}, err
	}
	c, err := again(ctx, "claim "+r.Key.Text, func() (ledger.Claimed, error) { return l.claim(ctx, &r) })
	if err != nil {
		return ledger.Claimed{}, err
	}
	return l.keepInput(ctx, &r, c)
}

// claim asks in the order of what is most likely and cheapest: a read, which ends duplicates, and an insert, for keys
// not seen, in whichever order is likely to need one of them alone; and the locked update for a row that is there and may
// be had. Who lost the race of an insert reads again.
func (l *Ledger) claim(ctx context.Context, r *ledger.Request) (ledger.Claimed, error) {
	if l.keys.likelyNew(r) {
		// Of a job that is there it does not matter that the asker's epoch is closed, nor that the server makes no new rows
		// (its disk is full, it only reads): the read tells.
		c, err := l.begin(ctx, r)
		if err == nil || err != ledger.ErrNotFound && err != ledger.ErrClosed && sqlState(err) == "" {
			return c, err
		}
	}
	asked := time.Now()
	seen, err := l.reads.do(ctx, r)
	if err == ledger.ErrNotFound {
		c, ierr := l.begin(ctx, r)
		if ierr != ledger.ErrNotFound {
			return c, ierr
		}
		asked = time.Now()
		seen, err = l.reads.do(ctx, r) // somebody was first
	}
	if err != nil {
		return ledger.Claimed{}, err
	}
	l.keys.saw(false)
	if !seen.takeable(r) {
		return seen.answer(r, asked), nil
	}
	return l.take(ctx, r, &seen.claimRow)
}

// begin makes the row of a key that nobody has seen. ErrNotFound: somebody was first.
func (l *Ledger) begin(ctx context.Context, r *ledger.Request) (ledger.Claimed, error) {
	asked := time.Now()
	ins, err := l.inserts.do(ctx, r)
	switch {
	case err != nil:
		return ledger.Claimed{}, err
	case ins.ID == nil:
		return ledger.Claimed{}, ledger.ErrClosed
	}
	l.keys.saw(true)
	made := claimRow{ID: *ins.ID, Fence: 1, Runs: 1, Generation: 1, Carrier: carrier(r), RunLeft: r.MaxRun}
	return made.running(r.Key, asked), nil
}

// habit tells from the last keys whether the next is likely to be new.
type habit struct {
	news atomic.Int64 // how many more of them were new than not, within habitSpan of zero
}

const habitSpan = 16

func (h *habit) saw(isNew bool) {
	switch n := h.news.Load(); { // a lost change matters to nobody
	case isNew && n < habitSpan:
		h.news.Add(1)
	case !isNew && n > -habitSpan:
		h.news.Add(-1)
	}
}

// likelyNew reports whether an insert is worth trying first. It is not for what was handed out before, or has a row
// for certain, nor while as many keys are known as new: a duplicate should write nothing.
func (h *habit) likelyNew(r *ledger.Request) bool {
	return r.Receives < 2 && r.Carrier == ledger.CarriedByBroker && h.news.Load() > habitSpan/2
}

// take asks for a row that is there, and was seen as seen. It is rare, and for one.
func (l *Ledger) take(ctx context.Context, r *ledger.Request, seen *claimRow) (ledger.Claimed, error) {
	asked := time.Now()
	taken, err := ask[claimRow](ctx, l, claimTakeSQL, r.Key.Tenant, r.Key.Text, [16]byte(r.Token), r.Action, r.InputHash[:],
		r.Worker.ID, r.Worker.Epoch, r.MaxRun, r.MaxRuns, r.Receives, r.Budget, r.Carrier,
		nonzero(r.MaxCalls), nonzero(r.Lifetime))
	switch {
	case err == ledger.ErrNotFound: // somebody holds the row locked
		return ledger.Claimed{Verdict: ledger.Busy, Generation: seen.Generation, Carrier: seen.Carrier, RetryIn: time.Second}, nil
	case err != nil:
		return ledger.Claimed{}, err
	case taken.Rule == "closed":
		return ledger.Claimed{}, ledger.ErrClosed
	}
	return taken.answer(r, asked), nil
}

// read reads the jobs of some claims, and their results if one of them wants its.
func (l *Ledger) read(ctx context.Context, rs []*ledger.Request) ([]readRow, error) {
	sql := claimVerdictSQL
	if slices.ContainsFunc(rs, func(r *ledger.Request) bool { return !r.VerdictOnly }) {
		sql = claimReadSQL
	}
	return many[readRow](ctx, l.pool, sql,
		column(rs, func(r *ledger.Request) string { return r.Key.Tenant }),
		column(rs, func(r *ledger.Request) string { return r.Key.Text }),
		column(rs, func(r *ledger.Request) [16]byte { return r.Token }))
}

// insertedRow is what became of the first claim of a key; none: somebody was first.
type insertedRow struct {
	place
	ID *int64 // nil: the asker's epoch is closed
}

// insert makes the rows of keys that nobody has seen.
func (l *Ledger) insert(ctx context.Context, rs []*ledger.Request) ([]insertedRow, error) {
	return many[insertedRow](ctx, l.pool, claimInsertSQL,
		column(rs, func(r *ledger.Request) string { return r.Key.Tenant }),
		column(rs, func(r *ledger.Request) string { return r.Key.Text }),
		column(rs, func(r *ledger.Request) [16]byte { return r.Token }),
		column(rs, func(r *ledger.Request) string { return r.Action }),
		column(rs, func(r *ledger.Request) []byte { return r.InputHash[:] }),
		column(rs, (*ledger.Request).RowInput),
		column(rs, func(r *ledger.Request) string { return string(carrier(r)) }),
		column(rs, func(r *ledger.Request) string { return r.Worker.ID }),
		column(rs, func(r *ledger.Request) int64 { return r.Worker.Epoch }),
		column(rs, func(r *ledger.Request) time.Duration { return r.MaxRun }),
		column(rs, func(r *ledger.Request) ledger.Nano { return r.Budget }),
		column(rs, func(r *ledger.Request) int { return r.Receives }),
		column(rs, func(r *ledger.Request) *string { return originText(r.Origin) }),
		column(rs, func(r *ledger.Request) *int { return nonzero(r.MaxCalls) }),
		column(rs, func(r *ledger.Request) *time.Duration { return nonzero(r.Lifetime) }))
}

// carrier of a new row: the ledger carries only what it can run.
func carrier(r *ledger.Request) ledger.Carrier {
	if r.Carrier == ledger.CarriedByLedger && r.RowInput() != nil {
		return ledger.CarriedByLedger
	}
	return ledger.CarriedByBroker
}

// takeable reports whether a locked look is worth its while: claim_take.sql decides.
func (c *claimRow) takeable(r *ledger.Request) bool {
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

func (c *claimRow) same(r *ledger.Request) bool {
	return c.Action == r.Action && ledger.Hash(c.InputHash) == r.InputHash
}

// running answers the claim that owns the row. The deadline is counted from before the
// ledger was asked: never later than the ledger's own.
func (c *claimRow) running(k ledger.Key, asked time.Time) ledger.Claimed {
	return ledger.Claimed{Verdict: ledger.Run, Run: c.Runs, Generation: c.Generation, Carrier: c.Carrier,
		Lease: ledger.Lease{Key: k, Job: c.ID, Fence: c.Fence, Deadline: asked.Add(c.RunLeft)}}
}

// answer says what the row is to the asker.
func (c *claimRow) answer(r *ledger.Request, asked time.Time) ledger.Claimed {
	a := ledger.Claimed{Generation: c.Generation, Carrier: c.Carrier}
	switch {
	case !c.same(r):
		a.Verdict, a.Stored = ledger.Mismatch, &ledger.Identity{Action: c.Action, InputHash: ledger.Hash(c.InputHash)}
	case c.State == ledger.Running && c.Mine:
		return c.running(r.Key, asked)
	case c.State == ledger.Done && c.ResultID == nil:
		a.Verdict, a.Cost = ledger.Purged, c.Cost
	case c.State == ledger.Done && r.VerdictOnly:
		a.Verdict, a.Cost = ledger.Saved, c.Cost
	case c.State == ledger.Done:
		a.Verdict, a.Cost = ledger.Saved, c.Cost
		a.Result = &ledger.Result{ID: *c.ResultID, Body: c.Body, Schema: *c.SchemaName}
		if _, large := ledger.Referred(c.Body); large {
			a.Result.Body = nil
		}
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
