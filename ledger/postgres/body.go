package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	chunkSQL     = statement("chunk")
	chunksSQL    = statement("chunks")
	answerSQL    = statement("answer")
	inputKeptSQL = statement("input_kept")
	keepInputSQL = statement("keep_input")
)

// chunksAtOnce is how many chunks one statement stores, some megabytes.
const chunksAtOnce = 16

// split stores the chunks of a body, if it has to be in chunks, and returns what its row holds. It
// does so before the verb whose row that is: statements for many are not held up by one large body.
func (l *Ledger) split(ctx context.Context, tenant string, job int64, body []byte, inline int) ([]byte, error) {
	row, chunks := ledger.Split(body, inline)
	hash, _ := ledger.Referred(row)
	for from := 0; from < len(chunks); from += chunksAtOnce {
		some := chunks[from:min(from+chunksAtOnce, len(chunks))]
		numbers := make([]int, len(some))
		for i := range some {
			numbers[i] = from + i
		}
		_, err := again(ctx, fmt.Sprintf("store a body of %d bytes", len(body)), func() (struct{}, error) {
			return on(ctx, l.lanes, func() (none struct{}, err error) {
				_, err = l.pool.Exec(ctx, chunkSQL, tenant, job, hash[:], numbers, some)
				return none, err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return row, nil
}

// join is the body that a row holds or refers to.
func join(ctx context.Context, q querier, tenant string, job int64, row []byte) ([]byte, error) {
	hash, ok := ledger.Referred(row)
	if !ok {
		return row, nil
	}
	rows, err := q.Query(ctx, chunksSQL, tenant, job, hash[:])
	if err != nil {
		return nil, err
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, err
	}
	return ledger.Join(row, chunks)
}

// input is a stored input, or its fault: one that is damaged must not keep others from being listed.
func input(body []byte, err error) ([]byte, error, error) {
	if errors.Is(err, ledger.ErrDamaged) {
		return nil, err, nil
	}
	return body, nil, err
}

// keepInput answers a claim. The input of one that is told Run is stored first, if it was too
// large for J1 and nobody has stored it.
func (l *Ledger) keepInput(ctx context.Context, r *ledger.Request, c ledger.Claimed) (ledger.Claimed, error) {
	body := r.LargeInput()
	if c.Verdict != ledger.Run || body == nil {
		return c, nil
	}
	what := "store the input of " + r.Key.Text
	seen, err := ask[struct{ InputKept bool }](ctx, l, inputKeptSQL, r.Key.Tenant, c.Lease.Job)
	if err != nil {
		return ledger.Claimed{}, fmt.Errorf("%s: %w", what, err)
	}
	if seen.InputKept {
		return c, nil
	}
	row, err := l.split(ctx, r.Key.Tenant, c.Lease.Job, body, ledger.InlineInput)
	if err != nil {
		return ledger.Claimed{}, err
	}
	kept, err := again(ctx, what, func() (struct{ Carrier ledger.Carrier }, error) {
		return ask[struct{ Carrier ledger.Carrier }](ctx, l, keepInputSQL, r.Carrier == ledger.CarriedByLedger,
			r.Key.Tenant, c.Lease.Job, c.Lease.Fence, row)
	})
	switch {
	case errors.Is(err, ledger.ErrNotFound): // the run is over, or somebody was faster
		return c, nil
	case err != nil:
		return ledger.Claimed{}, err
	}
	c.Carrier = kept.Carrier
	return c, nil
}

// Answer implements ledger.Reader. It reads everything in one snapshot.
func (l *Ledger) Answer(ctx context.Context, id ledger.AttemptID) (ledger.Response, error) {
	if !storable(id.Tenant) {
		return ledger.Response{}, ledger.ErrNotFound
	}
	var r ledger.Response
	err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		r, err = captured(ctx, tx, id)
		return err
	})
	if err != nil {
		return ledger.Response{}, fmt.Errorf("read the answer of attempt %s: %w", id.ID, err)
	}
	return r, nil
}

// captured reads an answer, whose attempt never changes again; ErrNotFound: there is none, or it was purged.
func captured(ctx context.Context, q querier, id ledger.AttemptID) (ledger.Response, error) {
	row, err := one[struct {
		Codec string
		Body  []byte
	}](ctx, q, answerSQL, id.Tenant, id.Job, [16]byte(id.ID))
	if err != nil {
		return ledger.Response{}, err
	}
	body, err := join(ctx, q, id.Tenant, id.Job, row.Body)
	return ledger.Response{Codec: row.Codec, Body: body}, err
}
