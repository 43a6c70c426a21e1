package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	followSQL = statement("follow")
	stepsSQL  = statement("steps")
)

// asks reports whether the result asks for steps or messages.
func (c *completion) asks() bool { return len(c.result.Steps)+len(c.result.Messages) > 0 }

// finishAsking writes a result, its job's row, and the steps and messages that it asks for, in one pipeline and so in one
// transaction. It is for one: a step's key may be that of a step which another result asks for at the same time,
// and then waits for that result's commit.
func finishAsking(ctx context.Context, q querier, c *completion) ([]finishedRow, error) {
	b := pipeline(1)
	var rows []finishedRow
	b.Queue(completeSQL, completeArgs([]*completion{c})...).Query(func(r pgx.Rows) (err error) {
		rows, err = collect[finishedRow](r)
		return err
	})
	c.queueAsked(b, true)
	return rows, q.SendBatch(ctx, b).Close()
}

// finishIn writes a result in the user's transaction, and what it asks for if it is not there already.
func finishIn(ctx context.Context, tx pgx.Tx, c *completion) error {
	row, err := first(finish(ctx, tx, []*completion{c}))
	if err := verdict(c.lease)(row, err); err != nil || !row.Done || !c.asks() {
		return err
	}
	b := &pgx.Batch{}
	c.queueAsked(b, false)
	return tx.SendBatch(ctx, b).Close()
}

// queueAsked queues the statements for what a result asks for. blind: whether this transaction made J10 is not known yet; it may
// have been one before, whose reply was lost.
func (c *completion) queueAsked(b *pgx.Batch, blind bool) {
	tenant, job, result := c.lease.Key.Tenant, c.lease.Job, [16]byte(c.result.ID)
	if steps := c.result.Steps; len(steps) > 0 {
		b.Queue(followSQL, tenant, job, result,
			column(steps, func(s ledger.StepAsk) string { return s.Key.Text }),
			column(steps, func(s ledger.StepAsk) string { return s.Action }),
			column(steps, func(s ledger.StepAsk) []byte { return s.InputHash[:] }),
			column(steps, func(s ledger.StepAsk) []byte { return s.Input }),
			column(steps, func(s ledger.StepAsk) *string { return originText(s.Origin) }), blind)
	}
	if ms := c.result.Messages; len(ms) > 0 {
		b.Queue(putSQL, tenant, job, result,
			column(ms, func(m ledger.MessageAsk) string { return m.Action }),
			column(ms, func(m ledger.MessageAsk) []byte { return m.Body }), ledger.MessageHold, blind)
	}
}

// originText is what the ledger keeps of an origin, as JSON: null for none.
func originText(o ledger.Origin) *string {
	o = o.Clean()
	if o.IsZero() {
		return nil
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is texts
	}
	return new(string(b))
}

// linkRow is a step of a job, or a job that asked for it.
type linkRow struct {
	Asked      bool
	Key        string
	Action     string
	Generation int
	Place      int64
	State      ledger.State
	Other      bool
	RemoteID   string
}

// readSteps adds the job's steps, and the jobs whose step it is.
func readSteps(ctx context.Context, q querier, j *ledger.Job) error {
	rows, err := many[linkRow](ctx, q, stepsSQL, j.Key.Tenant, j.ID, j.Key.Text, ledger.AskersShown)
	for _, r := range rows {
		k := ledger.Key{Tenant: j.Key.Tenant, Text: r.Key}
		if r.Asked {
			j.Steps = append(j.Steps, ledger.StepRow{Key: k, Action: r.Action, Generation: r.Generation, State: r.State, Other: r.Other, RemoteID: r.RemoteID})
		} else {
			j.AskedBy = append(j.AskedBy, k)
		}
	}
	return err
}
