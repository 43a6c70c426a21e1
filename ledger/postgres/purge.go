package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	purgeableSQL    = statement("purgeable")
	purgeNeededSQL  = statement("purge_needed")
	purgeMoveSQL    = statement("purge_move")
	purgeDropSQL    = statement("purge_drop")
	purgeNetSQL     = statement("purge_net")
	purgeKeysSQL    = statement("purge_keys")
	purgeCountsSQL  = statement("purge_counts")
	purgeBudgetsSQL = statement("purge_budgets")
)

// bodies and records are the tables of children, by whose retention is theirs.
var (
	bodies  = []string{"input", "response", "result", "chunk"} // in this order: a row must not outlive what it refers to
	records = []string{"attempt", "event"}
)

const (
	// purgeTries is how often a step is tried while others hold what it needs.
	purgeTries = 5
	// moveBatch is how many jobs move at most in one step: their rows are locked meanwhile, and
	// they may be in use.
	moveBatch = 100
	// moveLook is how many jobs to move are looked for at once, and kept in memory: a look reads
	// their whole day.
	moveLook = 10_000
	// purgePause is the pause after the first try; each one is longer by as much.
	purgePause = 100 * time.Millisecond
)

var (
	// errStopped: whoever iterates has seen enough.
	errStopped = errors.New("stopped")
	// errInUse: others hold what a step needs.
	errInUse = errors.New("in use")
)

// Purge implements ledger.Purger. Partitions are dropped whole. Before that the jobs of each
// of their days that are still needed move to the partitions of today, under row locks
// alone: a drop locks everybody out of its table, and has nothing to look for then.
func (l *Ledger) Purge(ctx context.Context, r ledger.Retention) iter.Seq2[ledger.PurgeStep, error] {
	r.Batch = cmp.Or(r.Batch, ledger.PurgeBatch)
	return func(yield func(ledger.PurgeStep, error) bool) {
		p := &purge{l: l, ctx: ctx, r: r, yield: yield}
		err := r.Check()
		if err == nil {
			err = p.run()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(ledger.PurgeStep{}, err)
		}
	}
}

// purge is one purge on its way.
type purge struct {
	l     *Ledger
	ctx   context.Context
	r     ledger.Retention
	yield func(ledger.PurgeStep, error) bool
}

// partition is one of a table of children.
type partition struct {
	Parent, Part string
	Low, High    time.Time // its days: from Low on, below High
}

// run forgets keys before their attempts and events: few jobs of such a month are left to
// be moved then.
func (p *purge) run() error {
	parts, err := many[partition](p.ctx, p.l.pool, purgeableSQL, p.r.Result, p.r.Key)
	if err != nil {
		return fmt.Errorf("look for partitions past their retention: %w", err)
	}
	if err := p.children(parts, bodies, p.r.Result); err != nil {
		return err
	}
	forgotten := func(n int) ledger.PurgeStep { return ledger.PurgeStep{Keys: n} }
	if err := p.left("", p.batches("forget old keys", forgotten, p.r.Batch, purgeKeysSQL, p.r.Key)); err != nil {
		return err
	}
	if err := p.children(parts, records, p.r.Key); err != nil {
		return err
	}
	if err := p.left("", p.batches("purge counts", deleted, p.r.Batch, purgeCountsSQL, p.r.Key)); err != nil {
		return err
	}
	return p.left("", p.batches("purge budgets", deleted, p.r.Batch, purgeBudgetsSQL, p.r.Key))
}

func deleted(n int) ledger.PurgeStep { return ledger.PurgeStep{Rows: n} }

// children forgets what is past keep in tables: their partitions, and then the rows that landed
// in the nets. Partitions of the same days go together, since they have the same jobs.
func (p *purge) children(parts []partition, tables []string, keep time.Duration) error {
	parts = slices.DeleteFunc(slices.Clone(parts), func(t partition) bool { return !slices.Contains(tables, t.Parent) })
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].Low.Equal(parts[0].Low) && parts[n].High.Equal(parts[0].High) {
			n++
		}
		if err := p.drop(parts[:n], keep); err != nil {
			return err
		}
		parts = parts[n:]
	}
	for _, table := range tables {
		if err := p.left("", p.batches("empty the net of "+table, deleted, p.r.Batch, purgeNetSQL, table, keep)); err != nil {
			return err
		}
	}
	return nil
}

// drop drops partitions of the same days, once nothing in them is needed.
func (p *purge) drop(parts []partition, keep time.Duration) error {
	for day := parts[0].Low; day.Before(parts[0].High); day = day.AddDate(0, 0, 1) {
		err := p.move(parts[0].Part, day, keep)
		if errors.Is(err, errInUse) {
			return p.left(parts[0].Part, err)
		}
		if err != nil {
			return err
		}
	}
	used := false
	for _, t := range parts {
		if used && t.Parent == "chunk" { // rows that refer to them are still there
			if err := p.left(t.Part, errInUse); err != nil {
				return err
			}
			continue
		}
		n, err := p.call("drop the partition "+t.Part, purgeDropSQL, t.Part, p.r.Result, p.r.Key)
		if err == nil && n != nil { // nil: somebody else did
			err = p.tell(ledger.PurgeStep{Rows: *n, Partition: t.Part})
		}
		used = used || errors.Is(err, errInUse)
		if err := p.left(t.Part, err); err != nil {
			return err
		}
	}
	return nil
}

// moving is a batch of jobs that are still needed.
type moving struct {
	Tenants []string
	Jobs    []int64
}

// move moves what is needed of a day out of the partition. Of what was looked for others may have
// moved a part.
func (p *purge) move(part string, day time.Time, keep time.Duration) error {
	for found := moveLook; found == moveLook; {
		batches, err := many[moving](p.ctx, p.l.pool, purgeNeededSQL, day, keep, moveLook, min(p.r.Batch, moveBatch))
		if err != nil {
			return fmt.Errorf("look for what is needed of %s: %w", part, err)
		}
		found = 0
		for _, b := range batches {
			found += len(b.Jobs)
			n, err := p.call("move what is needed of "+part, purgeMoveSQL, day, b.Tenants, b.Jobs)
			if err == nil && *n > 0 {
				err = p.tell(ledger.PurgeStep{Moved: *n})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// batches makes steps of a statement, whose last parameter is the batch, until one finds
// less than that.
func (p *purge) batches(what string, step func(n int) ledger.PurgeStep, batch int, sql string, args ...any) error {
	args = append(args, batch)
	for {
		n, err := p.call(what, sql, args...)
		if err != nil {
			return err
		}
		if *n > 0 {
			if err := p.tell(step(*n)); err != nil {
				return err
			}
		}
		if *n < batch {
			return nil
		}
	}
}

// call runs the statement of a step, and tries it again while others hold what it needs;
// errInUse: for too long.
func (p *purge) call(what, sql string, args ...any) (*int, error) {
	for try := 1; ; try++ {
		row, err := one[struct{ N *int }](p.ctx, p.l.pool, sql, args...)
		switch {
		case err == nil:
			return row.N, nil
		case !retriable(err) && sqlState(err) != "55P03":
			return nil, fmt.Errorf("%s: %w", what, err)
		case try == purgeTries:
			return nil, errInUse
		}
		select {
		case <-p.ctx.Done():
			return nil, fmt.Errorf("%s: %w", what, context.Cause(p.ctx))
		case <-time.After(time.Duration(try) * purgePause):
		}
	}
}

// tell yields a step.
func (p *purge) tell(s ledger.PurgeStep) error {
	if !p.yield(s, nil) {
		return errStopped
	}
	return nil
}

// left tells of a step that is left to the next purge because its error is errInUse.
func (p *purge) left(partition string, err error) error {
	if !errors.Is(err, errInUse) {
		return err
	}
	return p.tell(ledger.PurgeStep{Partition: partition, InUse: true})
}
