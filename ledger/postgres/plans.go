package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// firstPlans is how old the plans of a new connection's statements may get. Each time it
	// grows fourfold, up to lastPlans: a table that grows evenly is at most four times as large as it was planned for.
	firstPlans = 100 * time.Millisecond
	lastPlans  = time.Minute
)

// plans is when a connection's plans are to be made anew.
type plans struct {
	due   time.Time
	every time.Duration
}

// freshPlans makes a connection forget plans that are old for its age, as it is acquired. A plan is
// made once for all arguments, and is right for the tables as they were then: one that was made
// while they were empty finds a row by reading a table or all of a tenant, which costs nothing
// then and everything when they have grown. Only an analyze of the table ends it otherwise, which comes
// within a minute or, where autovacuum is off, never. Planning all statements takes some 20 ms.
func freshPlans(ctx context.Context, c *pgx.Conn) (bool, error) {
	const name = "paidonce plans"
	data, now := c.PgConn().CustomData(), time.Now()
	p, ok := data[name].(*plans)
	switch {
	case !ok:
		data[name] = &plans{now.Add(firstPlans), firstPlans}
		return true, nil
	case now.Before(p.due):
		return true, nil
	}
	p.every = min(4*p.every, lastPlans)
	p.due = now.Add(p.every)
	// A connection that cannot do that is of no use, and the pool makes another.
	_, err := c.Exec(ctx, "discard plans", pgx.QueryExecModeSimpleProtocol)
	return err == nil, nil
}
