package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
)

// measure starts the servers, gives every system its turns, and prints the table.
func measure(ctx context.Context, o options) error {
	b, err := makeBed(ctx, o)
	if b != nil {
		defer b.close()
	}
	if err != nil {
		return err
	}
	if err := b.conditions(ctx, o); err != nil {
		return err
	}
	all := map[string][]outcome{}
	for rep := range o.reps {
		for _, name := range o.systems {
			out, err := b.turn(ctx, o, name, uint64(rep+1))
			if err != nil {
				return fmt.Errorf("turn %d of %s: %w", rep+1, name, err)
			}
			all[name] = append(all[name], out)
			fmt.Fprintf(os.Stderr, "turn %d of %s is over, load %s\n", rep+1, name, load())
		}
	}
	t := table{o, all}
	t.print(os.Stdout)
	return t.judge(os.Stdout)
}

// turn lets one system work once, in an empty database and an empty queue. Before a storm it
// does the jobs of the storm, which is not measured.
func (b *bed) turn(ctx context.Context, o options, name string, seed uint64) (outcome, error) {
	ms, distinct := messages(o.messages, o.size, o.repeated, seed)
	t, err := newTurn(ctx, b, o, name, ms, distinct)
	if t != nil {
		defer t.room.close()
	}
	if err != nil {
		return outcome{}, err
	}
	if o.mode == modeStorm && !t.sys.bare {
		if t.sys.unique {
			return outcome{}, fmt.Errorf("%s refuses the duplicates when they are sent", name)
		}
		t.plan.Mode = modeDrain
		if _, err := t.run(ctx); err != nil {
			return outcome{}, err
		}
		t.plan.Mode, t.out = modeStorm, outcome{}
	}
	return t.run(ctx)
}

// stored counts the results in the system's database.
func (t *turn) stored(ctx context.Context) (n int, err error) {
	c, err := pgx.Connect(ctx, t.plan.Postgres)
	if err != nil {
		return 0, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	err = c.QueryRow(ctx, t.sys.results, t.plan.Size).Scan(&n)
	return n, err
}

// conditions prints what the numbers depend on, with the price of a round trip and of a
// commit as they were found.
func (b *bed) conditions(ctx context.Context, o options) error {
	var version, fsync, commit string
	if err := b.admin.QueryRow(ctx, `select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&version, &fsync, &commit); err != nil {
		return err
	}
	if fsync != "on" || commit != "on" {
		return fmt.Errorf("fsync is %s and synchronous_commit %s: what is measured would not be durable", fsync, commit)
	}
	trip, err := b.median(ctx, "select 1")
	if err != nil {
		return err
	}
	write, err := b.median(ctx, "select pg_logical_emit_message(true, 'bench', 'x')")
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d messages of %d bytes, %.0f %% of them duplicates; %d handlers of %v; Postgres %s, fsync and synchronous_commit on\n",
		o.mode, o.messages, o.size, 100*o.repeated, o.handlers, o.work, version)
	fmt.Printf("%d CPUs, load %s; a round trip to Postgres takes %v, a commit %v\n", runtime.NumCPU(), load(), trip, write-trip)
	for _, name := range o.systems {
		fmt.Println(" ", systems[name].about)
	}
	return nil
}

// median is how long a statement takes.
func (b *bed) median(ctx context.Context, sql string) (time.Duration, error) {
	var all []float64
	for range 51 {
		began := time.Now()
		if _, err := b.admin.Exec(ctx, sql); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(began)))
	}
	return time.Duration(percentile(all, 50)).Round(10 * time.Microsecond), nil
}
