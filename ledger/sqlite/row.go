package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// row is a job as its table has it; Attempts, History and Result of the embedded Job
// stay empty.
type row struct {
	ledger.Job
	token       ledger.ID // of the claim that runs it; zero: none
	runDeadline time.Time
	unknownAt   time.Time
	late        int64 // answers that arrived under a fence that was not the row's
	panics      int
	attempts    int
	uncounted   int // of these, those of earlier generations and those that were not sent
	events      int
	resultID    ledger.ID
	lease       time.Time      // of the owner's worker; zero: its epoch is closed
	news        []ledger.Event // not written yet
}

// readRow reads what load.sql and its like select.
func readRow(s scanner) (*row, error) {
	var r row
	var hash, token, result []byte
	var owner, class, text, origin *string
	var epoch, deadline, unknown, cost, done, lease *int64
	var lim limits
	var next, created, updated int64
	err := s.Scan(&r.Key.Tenant, &r.ID, &r.Key.Text, &r.Action, &hash, &r.InputKept, &r.State, &r.Generation, &r.Fence, &r.Carrier,
		&owner, &epoch, &token, &deadline, &next, &unknown, &r.Cancel, &r.Runs, &r.panics, &r.Replays, &r.Receives, &r.OpenCalls,
		&r.attempts, &r.events, &r.late, &cost, &r.Reserved, &r.Budget, &class, &text, &result, &created, &updated, &done, &origin,
		&lim.calls, &lim.lifetime, &lim.uncounted, &lim.began, &lease)
	if err != nil {
		return nil, err
	}
	r.InputHash, r.Owner = ledger.Hash(hash), ledger.WorkerID{ID: value(owner), Epoch: value(epoch)}
	r.token, r.resultID = id(token), id(result)
	r.runDeadline, r.unknownAt, r.DoneAt, r.lease = at(deadline), at(unknown), at(done), at(lease)
	r.NextAt, r.CreatedAt, r.UpdatedAt = time.UnixMicro(next), time.UnixMicro(created), time.UnixMicro(updated)
	lim.of(&r)
	if cost != nil {
		r.Cost = new(ledger.Nano(*cost))
	}
	if class != nil {
		r.Error = &ledger.JobError{Class: *class, Text: value(text)}
	}
	r.Origin, err = readOrigin(origin)
	return &r, err
}

// limits are the columns of them as they are stored.
type limits struct {
	calls, uncounted *int
	lifetime, began  *int64
}

// of puts them into a row, of which the number of attempts and the time of creation are known.
func (l limits) of(r *row) {
	r.uncounted = value(l.uncounted)
	r.Calls, r.MaxCalls = r.attempts-r.uncounted, value(l.calls)
	r.Lifetime, r.BeganAt = time.Duration(value(l.lifetime))*time.Microsecond, r.CreatedAt
	if l.began != nil {
		r.BeganAt = time.UnixMicro(*l.began)
	}
}

// readOrigin reads the column of an origin.
func readOrigin(text *string) (o ledger.Origin, err error) {
	if text != nil {
		err = json.Unmarshal([]byte(*text), &o)
	}
	return o, err
}

// originText is the column of an origin, null when nothing is known.
func originText(o ledger.Origin) (any, error) {
	if o.IsZero() {
		return nil, nil
	}
	b, err := json.Marshal(o)
	return string(b), err
}

// readFacts reads what facts.sql selects: a row that save would spoil.
func readFacts(s scanner) (*row, error) {
	var r row
	var owner *string
	var deadline, cost *int64
	var created int64
	var lim limits
	var result []byte
	err := s.Scan(&r.State, &r.Generation, &r.Fence, &owner, &deadline, &r.Cancel, &r.OpenCalls, &r.attempts, &r.events, &r.late,
		&cost, &r.Reserved, &r.Budget, &result, &r.Action, &created, &lim.calls, &lim.lifetime, &lim.uncounted, &lim.began)
	r.Owner.ID, r.runDeadline, r.resultID = value(owner), at(deadline), id(result)
	r.CreatedAt = time.UnixMicro(created)
	lim.of(&r)
	if cost != nil {
		r.Cost = new(ledger.Nano(*cost))
	}
	return &r, err
}

// facts reads a job for a verb that writes only what it changes; nil: there is no such
// job.
func (t *tx) facts(tenant string, job int64) (*row, error) {
	r, err := one(context.Background(), t, readFacts, "facts", tenant, job)
	if err == ledger.ErrNotFound {
		return nil, nil
	}
	if r != nil {
		r.Key.Tenant, r.ID = tenant, job
	}
	return r, err
}

// id is the id in a column, zero for null.
func id(b []byte) (v ledger.ID) {
	copy(v[:], b)
	return v
}

// blob is the column of an id.
func blob(v ledger.ID) any {
	if v.IsZero() {
		return nil
	}
	return v[:]
}

// load reads a job by its id; nil: there is no such job.
func (t *tx) load(tenant string, job int64) (*row, error) {
	return load(context.Background(), t, tenant, job)
}

// find reads a job by its key; nil: there is no such job.
func (t *tx) find(k ledger.Key) (*row, error) { return find(context.Background(), t, k) }

func find(ctx context.Context, q querier, k ledger.Key) (*row, error) {
	job, err := one(ctx, q, scalar[int64], "id", k.Tenant, k.Text)
	if err == nil {
		return load(ctx, q, k.Tenant, job)
	}
	if err == ledger.ErrNotFound {
		err = nil
	}
	return nil, err
}

func load(ctx context.Context, q querier, tenant string, job int64) (*row, error) {
	r, err := one(ctx, q, readRow, "load", tenant, job)
	if err == ledger.ErrNotFound {
		return nil, nil
	}
	return r, err
}

// save writes what changed of a job, and its history.
func (t *tx) save(r *row) error {
	var class, text any
	if r.Error != nil {
		class, text = r.Error.Class, r.Error.Text
	}
	var owner, epoch any
	if r.Owner != (ledger.WorkerID{}) {
		owner, epoch = r.Owner.ID, r.Owner.Epoch
	}
	deadline, unknown, began := r.runDeadline, r.unknownAt, r.BeganAt
	if began.Equal(r.CreatedAt) {
		began = time.Time{}
	}
	if r.State != ledger.Running {
		deadline = time.Time{}
	}
	if r.State != ledger.Unknown {
		unknown = time.Time{}
	}
	events := r.events + len(r.news)
	_, err := t.exec("save", string(r.State), r.Fence, string(r.Carrier), owner, epoch, blob(r.token), orNull(deadline), micros(r.NextAt),
		orNull(unknown), r.Cancel, r.Runs, r.panics, r.Replays, r.Receives, r.OpenCalls, r.attempts, events,
		r.late, nano(r.Cost), int64(r.Reserved), int64(r.Budget), null(r.MaxCalls), null(r.Lifetime.Microseconds()), null(r.uncounted), orNull(began), class, text, blob(r.resultID), micros(r.UpdatedAt), orNull(r.DoneAt),
		r.Key.Tenant, r.ID)
	if err != nil {
		return err
	}
	return t.tell(r)
}

// tell writes the news of a row into its history.
func (t *tx) tell(r *row) error {
	for _, e := range r.news {
		r.events++
		if _, err := t.exec("event", r.Key.Tenant, r.ID, r.events, micros(e.At), string(e.From), string(e.To), e.Actor, e.Reason, e.Looks); err != nil {
			return err
		}
	}
	r.news = nil
	return nil
}

// facts is what the guards may know of a row; nil: there is none. What the asker presents
// is added by the verb.
func (r *row) facts(now time.Time) ledger.Facts {
	if r == nil {
		return ledger.Facts{}
	}
	open := !r.lease.IsZero()
	return ledger.Facts{
		Exists: true, State: r.State, OpenCalls: r.OpenCalls, Cancel: r.Cancel, InputKept: r.InputKept,
		Due:    !now.Before(r.NextAt),
		Lapsed: !open || !now.Before(r.runDeadline),
		Owned:  open && now.Before(r.lease),
	}
}

// leaseFacts are the facts for the owner of a lease, who is bound by its run's
// deadline alone.
func (r *row) leaseFacts(lease ledger.Lease, now time.Time) ledger.Facts {
	f := r.facts(now)
	f.FenceHeld = r != nil && r.Fence == lease.Fence
	f.Lapsed = r != nil && !now.Before(r.runDeadline)
	return f
}

// limits adds to the facts whether the row may send so many more calls.
func (r *row) limits(f *ledger.Facts, more int, now time.Time) {
	f.CallsLeft = r != nil && ledger.CallsLeft(r.MaxCalls, r.Calls, more)
	f.InLifetime = r != nil && ledger.InLifetime(r.Lifetime, r.BeganAt, now)
}

// move makes transition t and writes it into the history.
func (r *row) move(t ledger.Transition, now time.Time, actor, reason string) {
	to := t.To
	if to == "" {
		to = r.State
	}
	r.moveTo(to, t, now, actor, reason)
}

// moveTo is move where a count decides about the state (J8, J9).
func (r *row) moveTo(to ledger.State, t ledger.Transition, now time.Time, actor, reason string) {
	r.record(to, now, actor, t.ID+" "+t.Name+reason)
	if t.Fence {
		r.Fence++
	}
}

// record changes the state and writes the history.
func (r *row) record(to ledger.State, now time.Time, actor, reason string) {
	r.news = append(r.news, ledger.Event{At: now, From: r.State, To: to, Actor: ledger.Text(actor), Reason: ledger.Text(reason)})
	r.State, r.UpdatedAt = to, now
}

// disown ends the run: nobody owns the job.
func (r *row) disown() { r.Owner, r.token = ledger.WorkerID{}, ledger.ID{} }

// lapse makes a job unknown whose run died with calls open (J4, J13).
func (r *row) lapse(t ledger.Transition, now time.Time, actor string) {
	r.move(t, now, actor, fmt.Sprintf(", %d open", r.OpenCalls))
	r.disown()
	r.unknownAt, r.NextAt = now, now
	if r.InputKept {
		r.Carrier = ledger.CarriedByLedger
	}
}

// closeOpen closes all open attempts of a job as unknown, for good. Their reserve stays.
func (t *tx) closeOpen(r *row) error {
	if r.OpenCalls == 0 {
		return nil
	}
	n, err := t.exec("close_all", micros(t.now), r.Key.Tenant, r.ID)
	r.OpenCalls -= n
	return err
}

// cancel ends a job by a person's will (J19, J19b, J19c).
func (t *tx) cancel(r *row, rule ledger.Transition, actor, reason string) error {
	if err := t.closeOpen(r); err != nil {
		return err
	}
	r.move(rule, t.now, actor, reason)
	r.disown()
	return nil
}

// released says what became of the job.
func (r *row) released(now time.Time) ledger.Released {
	x := ledger.Released{State: r.State, Carrier: r.Carrier}
	if r.State == ledger.Ready || r.State == ledger.Unknown {
		x.RetryIn = max(0, r.NextAt.Sub(now))
	}
	return x
}
