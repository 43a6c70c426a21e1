package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// chunksAtOnce is how many chunks one item of the writer stores, some megabytes: others commit
// in between.
const chunksAtOnce = 16

// split stores the chunks of a body, if it has to be in chunks, and returns what its row holds. It
// does so before the verb whose row that is: the writer is not kept by one large body.
func (l *Ledger) split(ctx context.Context, tenant string, job int64, body []byte, inline int) ([]byte, error) {
	row, chunks := ledger.Split(body, inline)
	hash, _ := ledger.Referred(row)
	for from := 0; from < len(chunks); from += chunksAtOnce {
		_, err := write(ctx, l, fmt.Sprintf("store a body of %d bytes", len(body)), func(t *tx) (struct{}, error) {
			for n := from; n < min(from+chunksAtOnce, len(chunks)); n++ {
				if _, err := t.exec("chunk", tenant, job, hash[:], n, chunks[n]); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
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
	chunks, err := many(ctx, q, scalar[[]byte], "chunks", tenant, job, hash[:])
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
func (l *Ledger) keepInput(ctx context.Context, q ledger.Request, c ledger.Claimed) (ledger.Claimed, error) {
	if c.Verdict != ledger.Run || q.LargeInput() == nil {
		return c, nil
	}
	what := "store the input of " + q.Key.Text
	kept, err := one(ctx, l.readers, scalar[bool], "input_kept", q.Key.Tenant, c.Lease.Job)
	if err != nil {
		return ledger.Claimed{}, known(what, err)
	}
	if kept {
		return c, nil
	}
	row, err := l.split(ctx, q.Key.Tenant, c.Lease.Job, q.Input, ledger.InlineInput)
	if err != nil {
		return ledger.Claimed{}, err
	}
	return write(ctx, l, what, func(t *tx) (ledger.Claimed, error) {
		carrier, err := one(ctx, t, scalar[ledger.Carrier], "keep_input", q.Carrier == ledger.CarriedByLedger, q.Key.Tenant, c.Lease.Job, c.Lease.Fence)
		if err == ledger.ErrNotFound { // the run is over, or somebody was faster
			return c, nil
		}
		if err == nil {
			c.Carrier = carrier
			_, err = t.exec("input", q.Key.Tenant, c.Lease.Job, row)
		}
		return c, err
	})
}
