package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// room stands in for a test where servers are started: they come from the helpers of the tests,
// and end with the room. What a test would fail of is a panic of type refusal.
type room struct {
	testing.TB // the methods that the helpers do not call; nil
	name       string
	ends       []func()
}

// refusal is why a server is not there.
type refusal struct{ error }

// Helper does nothing.
func (*room) Helper() {}

// Name is part of the names of databases.
func (r *room) Name() string { return r.name }

// Cleanup keeps f for close.
func (r *room) Cleanup(f func()) { r.ends = append(r.ends, f) }

// Logf writes to standard error.
func (*room) Logf(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }

// Fatalf panics.
func (*room) Fatalf(format string, a ...any) { panic(refusal{fmt.Errorf(format, a...)}) }

// Fatal panics.
func (*room) Fatal(a ...any) { panic(refusal{fmt.Errorf("%s", fmt.Sprint(a...))}) }

// close undoes what was done in the room, the last first.
func (r *room) close() {
	for len(r.ends) > 0 {
		end := r.ends[len(r.ends)-1]
		r.ends = r.ends[:len(r.ends)-1]
		end()
	}
}

// refused turns the panic of Fatalf into an error. It is deferred.
func refused(err *error) {
	switch v := recover().(type) {
	case nil:
	case refusal:
		*err = v.error
	default:
		panic(v)
	}
}

// bed is the servers, and a connection to look at them.
type bed struct {
	room
	postgres *pgtest.Server
	rabbit   *rabbittest.Server
	admin    *pgx.Conn
	redis    string // its address, if a system needs it
	pids     struct{ postgres, rabbit, redis int }
}

// adminName is the application name of our own connection.
const adminName = "bench"

// makeBed starts the servers. Its caller closes it.
func makeBed(ctx context.Context, o options) (b *bed, err error) {
	defer refused(&err)
	b = &bed{room: room{name: "bench"}}
	if o.fsync > 0 || o.trip > 0 {
		b.postgres = pgtest.StartDurableOn(b, pgtest.Disk{Sync: o.fsync, Trip: o.trip})
	} else {
		b.postgres = pgtest.StartDurable(b)
	}
	if b.pids.postgres, err = b.postgres.PID(); err != nil {
		return b, err
	}
	b.rabbit = rabbittest.StartOnDisk(b)
	b.pids.rabbit = b.rabbit.PID()
	if slices.ContainsFunc(o.systems, func(name string) bool { return systems[name].redis }) {
		if b.redis, b.pids.redis, err = startRedis(ctx, &b.room); err != nil {
			return b, err
		}
	}
	cfg, err := pgx.ParseConfig(b.postgres.URL(b))
	if err != nil {
		return b, err
	}
	cfg.RuntimeParams["application_name"] = adminName
	if b.admin, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return b, err
	}
	b.Cleanup(func() { b.admin.Close(context.Background()) })
	return b, nil
}
