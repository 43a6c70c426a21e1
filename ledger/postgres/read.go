package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	jobSQL      = statement("job")
	attemptsSQL = statement("attempts")
	eventsSQL   = statement("events")
	resultSQL   = statement("result")
	unknownsSQL = statement("unknowns")
	waitingSQL  = statement("waiting")
)

// jobRow is a job as people see it.
type jobRow struct {
	Tenant     string
	ID         int64
	Key        string
	Action     string
	State      ledger.State
	Generation int
	Runs       int
	Replays    int
	Fence      int64
	OpenCalls  int
	Receives   int
	Carrier    ledger.Carrier
	Owner      *string
	OwnerEpoch *int64
	Cancel     bool
	InputHash  []byte
	InputKept  bool
	Cost       *ledger.Nano
	Reserved   ledger.Nano
	Budget     ledger.Nano
	Calls      int
	MaxCalls   int
	Lifetime   time.Duration
	BeganAt    time.Time
	ErrorClass *string
	ErrorText  *string
	Origin     *ledger.Origin
	CreatedAt  time.Time
	UpdatedAt  time.Time
	NextAt     time.Time
	DoneAt     *time.Time
}

func (r jobRow) job() ledger.Job {
	j := ledger.Job{
		Key: keyRow{r.Tenant, r.Key}.key(), ID: r.ID, Action: r.Action, State: r.State, Generation: r.Generation,
		Runs: r.Runs, Replays: r.Replays, Fence: r.Fence, OpenCalls: r.OpenCalls, Receives: r.Receives, Carrier: r.Carrier,
		Cancel: r.Cancel, InputHash: ledger.Hash(r.InputHash), InputKept: r.InputKept,
		Cost: r.Cost, Reserved: r.Reserved, Budget: r.Budget, Calls: r.Calls, MaxCalls: r.MaxCalls, Lifetime: r.Lifetime, BeganAt: r.BeganAt, Error: jobError(r.ErrorClass, r.ErrorText), Origin: value(r.Origin),
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, NextAt: r.NextAt, DoneAt: value(r.DoneAt),
	}
	if r.Owner != nil {
		j.Owner = ledger.WorkerID{ID: *r.Owner, Epoch: value(r.OwnerEpoch)}
	}
	return j
}

// attemptRow is an attempt as people and reconcilers see it.
type attemptRow struct {
	ID                [16]byte
	Generation, N     int
	Fence             int64
	State             ledger.AttemptState
	CallName          string
	InputKey          string
	Route             string
	Provider          string
	Model             string
	Config            string
	ClientRequestID   string
	Timeout           time.Duration
	Reserve           ledger.Nano
	LateSeen          int64
	SentAt            time.Time
	EndedAt           *time.Time
	Class             string
	SeenBy            ledger.Actor
	Who               string
	Reason            string
	Status            int
	ProviderRequestID string
	ObjectID          string
	FirstByte         *time.Duration
	TokensIn          *int64
	TokensCached      *int64
	TokensOut         *int64
	Cost              *ledger.Nano
	CostSource        string
	Surplus           bool
	AppliedAt         *time.Time
	Captured          *int
	AnswerKept        bool
}

func (r attemptRow) attempt() ledger.AttemptRow {
	return ledger.AttemptRow{
		Attempt: ledger.Attempt{
			ID: r.ID, Call: ledger.CallRef{Name: r.CallName, InputKey: r.InputKey}, Route: r.Route, Provider: r.Provider,
			Model: r.Model, Config: r.Config, ClientRequestID: r.ClientRequestID, Timeout: r.Timeout,
			Reserve: r.Reserve, LateSeen: r.LateSeen,
		},
		N: r.N, Generation: r.Generation, Fence: r.Fence, State: r.State, SentAt: r.SentAt, EndedAt: value(r.EndedAt),
		Evidence: ledger.Evidence{
			State: r.State, Class: r.Class, By: r.SeenBy, Who: r.Who, Reason: r.Reason, Status: r.Status,
			ProviderRequestID: r.ProviderRequestID, ObjectID: r.ObjectID, FirstByte: value(r.FirstByte),
			Usage: ledger.Usage{In: r.TokensIn, Cached: r.TokensCached, Out: r.TokensOut},
			Cost:  r.Cost, CostSource: r.CostSource,
		},
		Surplus: r.Surplus, Applied: value(r.AppliedAt), HasAnswer: r.Captured != nil, AnswerKept: r.AnswerKept,
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// attempts reads those of a job that are in a state, or all.
func attempts(ctx context.Context, q querier, tenant string, job int64, state ledger.AttemptState) ([]ledger.AttemptRow, error) {
	rows, err := many[attemptRow](ctx, q, attemptsSQL, tenant, job, state)
	return column(rows, attemptRow.attempt), err
}

// Job implements ledger.Reader. It reads everything in one snapshot.
func (l *Ledger) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	if !storable(k.Tenant, k.Text) {
		return ledger.Job{}, ledger.ErrNotFound
	}
	var j ledger.Job
	err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		row, err := one[jobRow](ctx, tx, jobSQL, k.Tenant, k.Text)
		if err != nil {
			return err
		}
		j = row.job()
		if j.Attempts, err = attempts(ctx, tx, k.Tenant, j.ID, ""); err != nil {
			return err
		}
		if j.History, err = history(ctx, tx, k.Tenant, j.ID); err != nil {
			return err
		}
		if err := readSteps(ctx, tx, &j); err != nil {
			return err
		}
		return readResult(ctx, tx, &j)
	})
	if err != nil {
		return ledger.Job{}, fmt.Errorf("read %s: %w", k, err)
	}
	return j, nil
}

func history(ctx context.Context, q querier, tenant string, job int64) ([]ledger.Event, error) {
	rows, err := many[struct {
		At                 time.Time
		FromState, ToState ledger.State
		Actor, Reason      string
		Looks              int
	}](ctx, q, eventsSQL, tenant, job)
	if err != nil {
		return nil, err
	}
	var events []ledger.Event
	for _, r := range rows {
		events = append(events, ledger.Event{At: r.At, From: r.FromState, To: r.ToState, Actor: r.Actor, Reason: r.Reason, Looks: r.Looks})
	}
	return events, nil
}

// readResult adds the result of a job that is done, or that it is purged, and what is kept of earlier generations.
func readResult(ctx context.Context, q querier, j *ledger.Job) error {
	if j.State != ledger.Done && j.Generation == 1 {
		return nil
	}
	rows, err := many[struct {
		Generation int
		ID         [16]byte
		SchemaName string
		Body       []byte
	}](ctx, q, resultSQL, j.Key.Tenant, j.ID)
	j.Purged = j.State == ledger.Done
	for _, row := range rows {
		r := ledger.Result{ID: row.ID, Schema: row.SchemaName}
		if r.Body, err = join(ctx, q, j.Key.Tenant, j.ID, row.Body); err != nil {
			break
		}
		if row.Generation < j.Generation {
			j.Earlier = append(j.Earlier, ledger.Earlier{Generation: row.Generation, Result: r})
		} else {
			j.Result, j.Purged = &r, false
		}
	}
	return err
}

// Unknowns implements ledger.Reader.
func (l *Ledger) Unknowns(ctx context.Context) ([]ledger.UnknownCount, error) {
	counts, err := many[ledger.UnknownCount](ctx, l.pool, unknownsSQL)
	if err != nil {
		return nil, fmt.Errorf("count unknown jobs: %w", err)
	}
	return counts, nil
}

// Waiting counts the jobs of each action, of all tenants, that wait for a worker that can run them.
func (l *Ledger) Waiting(ctx context.Context) ([]ledger.WaitingCount, error) {
	counts, err := many[ledger.WaitingCount](ctx, l.pool, waitingSQL)
	if err != nil {
		return nil, fmt.Errorf("count waiting jobs: %w", err)
	}
	return counts, nil
}

// storable reports whether Postgres can hold the texts; what it cannot hold it does
// not have.
func storable(texts ...string) bool {
	for _, s := range texts {
		if s != ledger.Text(s) {
			return false
		}
	}
	return true
}
