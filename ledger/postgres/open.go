package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
)

var _ ledger.Store = (*Ledger)(nil)

// ErrConfig: the URL, or the database it names, cannot serve as a ledger.
var ErrConfig = errors.New("PO231 the Postgres ledger cannot be used like this")

// Options tune Open. The zero value is right for most.
type Options struct {
	// MaxConns bounds the pool. 0: pool_max_conns of the URL if it is there, else 4,
	// which is enough for thousands of jobs in flight.
	MaxConns int
	// StatementTimeout ends statements, the user's own in the result's transaction
	// included, that run longer. 0: a minute. Behind a pooler it is not set:
	// there it would stay on a connection that others use too.
	StatementTimeout time.Duration
}

// Ledger is a ledger.Store in a Postgres database. Make one with Open.
type Ledger struct {
	pool  *pgxpool.Pool
	lanes *lanes
	keys  habit

	reads   *group[ledger.Request, readRow]
	inserts *group[ledger.Request, insertedRow]
	looks   *group[callAsk, lookedRow]

	gates       *group[gateAsk, gateRow]
	limited     *group[gateAsk, limitedRow] // those under budgets of the day
	settlements *group[settleAsk, settledRow]
	completions *group[completion, finishedRow]
	releases    *group[releasing, releasedRow]
}

// Open connects to the database that url names ("postgres://user:password@host/db";
// pgx's pool settings may be appended) and returns the ledger in it. It does not
// look at the schema: Ping does. The caller closes the ledger.
//
// Errors wrap ErrConfig when the URL is wrong or the database commits
// asynchronously, which would forget what was sent; else the database could not be
// reached. No error shows the password.
func Open(ctx context.Context, url string, o Options) (*Ledger, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err) // pgx leaves the password out
	}
	server, err := probe(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := configure(cfg, url, o, server); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the Postgres ledger: %w", err)
	}
	return newLedger(pool, int(cfg.MaxConns)), nil
}

func newLedger(pool *pgxpool.Pool, conns int) *Ledger {
	l := &Ledger{pool: pool, lanes: newLanes(conns)}
	l.reads = newGroup(l.lanes, l.read)
	l.inserts = newGroup(l.lanes, l.insert)
	l.inserts.key = func(r *ledger.Request) any { return r.Token } // its place is found by it
	l.inserts.size = func(r *ledger.Request) int { return len(r.RowInput()) }
	l.looks = newGroup(l.lanes, l.look)
	l.gates = newGroup(l.lanes, l.gate)
	l.gates.key = func(a *gateAsk) any { return jobRef{a.lease.Key.Tenant, a.lease.Job} }
	l.limited = newGroup(l.lanes, l.gateWithin)
	l.limited.key = l.gates.key
	l.settlements = newGroup(l.lanes, l.settle)
	l.settlements.key = func(a *settleAsk) any { return a.job() }
	l.settlements.size = func(a *settleAsk) int { return len(a.body()) }
	l.completions = newGroup(l.lanes, func(ctx context.Context, cs []*completion) ([]finishedRow, error) { return finish(ctx, l.pool, cs) })
	l.completions.key = func(c *completion) any { return c.job() }
	l.completions.size = func(c *completion) int { return len(c.result.Body) }
	l.releases = newGroup(l.lanes, l.release)
	l.releases.key = func(r *releasing) any { return r.job() }
	return l
}

// Close waits for the verbs that run and closes the connections.
func (l *Ledger) Close() {
	l.lanes.close()
	l.pool.Close()
}

// server is what the first connection tells.
type server struct {
	pooled    bool   // a pooler is in between
	commit    string // synchronous_commit
	isolation string // default_transaction_isolation
}

// probe looks at the server through a connection of its own. A pooler makes up the process
// id that it gives its clients, so theirs is not that of the server process
// that answers.
func probe(ctx context.Context, base *pgx.ConnConfig) (server, error) {
	cfg := base.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return server{}, fmt.Errorf("connect to the Postgres ledger: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	var s server
	var pid uint32
	err = c.QueryRow(ctx, `select pg_backend_pid(), current_setting('synchronous_commit'),
		current_setting('default_transaction_isolation')`).Scan(&pid, &s.commit, &s.isolation)
	if err != nil {
		return server{}, fmt.Errorf("ask the Postgres ledger for its settings: %w", err)
	}
	s.pooled = pid != c.PgConn().PID()
	return s, nil
}

func configure(cfg *pgxpool.Config, rawURL string, o Options, s server) error {
	if o.MaxConns > 0 {
		cfg.MaxConns = int32(o.MaxConns)
	} else if !strings.Contains(rawURL, "pool_max_conns") {
		cfg.MaxConns = 4
	}
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		knowLists(c.TypeMap())
		return nil
	}
	params := cfg.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "paidonce"
	}
	if s.pooled {
		return configurePooled(cfg, rawURL, s)
	}
	cfg.PrepareConn = freshPlans
	// Rows are found by their keys. A statement prepared while a table is empty would read it from
	// end to end, and go on so when it is full: all ways to do that are off.
	for _, way := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		params[way] = "off"
	}
	// Rows are found by their keys whatever the arguments, and planning a statement over
	// partitions for its arguments takes ten times as long as running it.
	params["plan_cache_mode"] = "force_generic_plan"
	// A way that is off is planned as if it cost ten milliards, and a plan that has to take it anyway, on
	// a partition without rows, would be compiled for it at each use.
	params["jit"] = "off"
	params["default_transaction_isolation"] = "read committed"
	if s.commit == "off" {
		params["synchronous_commit"] = "on"
	}
	timeout := cmp.Or(o.StatementTimeout, time.Minute)
	for _, p := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		if params[p] == "" {
			params[p] = fmt.Sprint(timeout.Milliseconds())
		}
	}
	return nil
}

// configurePooled makes do without any setting of the session: poolers refuse them, or
// leave them on connections that others use. Statements are planned at each use
// there, so no plan of an empty table stays; it costs a millisecond or two of the
// server's CPU each. PgBouncer from 1.21 on follows prepared statements where
// max_prepared_statements is set: default_query_exec_mode=cache_statement in the URL
// saves the planning then.
func configurePooled(cfg *pgxpool.Config, rawURL string, s server) error {
	if !strings.Contains(rawURL, "default_query_exec_mode") {
		// Names of prepared statements belong to one server connection.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if s.commit == "off" {
		return fmt.Errorf("%w: synchronous_commit is off, and a crash of the server would forget calls that were sent: "+
			"alter role %q set synchronous_commit = on", ErrConfig, cfg.ConnConfig.User)
	}
	if s.isolation != "read committed" {
		return fmt.Errorf("%w: default_transaction_isolation is %s: alter role %q set default_transaction_isolation = 'read committed'",
			ErrConfig, s.isolation, cfg.ConnConfig.User)
	}
	return nil
}

// Redact returns the URL without its password, for logs.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "postgres://…"
	}
	q := u.Query()
	if q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}
