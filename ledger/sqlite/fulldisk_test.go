package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// untilRoom does what needs room with ever more of it, until it succeeds: without enough it is refused with the code, and as
// unharmed says afterwards nothing has happened.
func untilRoom(t *testing.T, what string, least int64, do func() error, unharmed func()) {
	t.Helper()
	for room := range int64(500) {
		fillDisk(t, room)
		err := do()
		emptyDisk()
		if err == nil && room >= least {
			return
		}
		if err == nil || !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) || !strings.Contains(err.Error(), "PO633") || strings.Contains(err.Error(), "rollback") {
			t.Fatalf("%s with room for %d writes: %v, want ErrFull", what, room, err)
		}
		unharmed()
	}
	t.Fatalf("%s never finds room", what)
}

// TestFullDisk: a verb is committed when its transaction is put into the log, which is when the disk may turn out to be full, after any
// of its pages. Nothing of it has happened then, for whoever reads, and it is done once there is room.
func TestFullDisk(t *testing.T) {
	f := newFixture(t)
	r, ran := request(f.worker, "a"), 0
	var lease ledger.Lease
	var id ledger.ID
	for _, c := range []struct {
		verb  string
		do    func() error
		state ledger.State // afterwards
	}{
		{"claim", func() error { c, err := f.Claim(t.Context(), r); lease = c.Lease; return err }, ledger.Running},
		{"send", func() error { a := attempt(); id = a.ID; return f.Send(t.Context(), lease, a) }, ledger.Running},
		{"settle", func() error {
			_, err := f.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: id}, answer())
			return err
		}, ledger.Running},
		{"complete", func() error {
			return f.complete(t.Context(), lease, "", func(ctx context.Context, tx sqlite.Tx) error { ran++; return mark("x")(ctx, tx) })
		}, ledger.Done},
	} {
		before, known := f.Job(t.Context(), r.Key)
		tries := 0
		untilRoom(t, c.verb, 3, c.do, func() {
			tries++
			other := open(t, f.path) // what is in the file, and not in somebody's memory
			for who, l := range map[string]*sqlite.Ledger{"the ledger": f.Ledger, "another": other} {
				if j, err := l.Job(t.Context(), r.Key); !reflect.DeepEqual(j, before) || !errors.Is(err, known) {
					t.Fatalf("%s without room, for %s: %+v, %v; before %+v, %v", c.verb, who, j, err, before, known)
				}
			}
			other.Close()
			if m := marks(t, raw(t, f.path)); len(m) != 0 {
				t.Fatalf("%s without room: %d of the user's rows", c.verb, len(m))
			}
		})
		if f.state("a") != c.state || c.verb == "complete" && ran != tries+1 {
			t.Errorf("%s with room: %s, the user's work ran %d times in %d tries", c.verb, f.state("a"), ran, tries+1)
		}
	}
	f.Close()
	j, err := open(t, f.path).Job(t.Context(), r.Key)
	if err != nil || j.State != ledger.Done || j.Runs != 1 || j.OpenCalls != 0 || len(j.Attempts) != 1 || !j.Attempts[0].HasAnswer || j.Result == nil {
		t.Errorf("at the end %+v, %v", j, err)
	}
	if m := marks(t, raw(t, f.path)); len(m) != 1 {
		t.Errorf("%d of the user's rows, want 1", len(m))
	}
}

// TestFullDiskGroup: those who are committed together are refused together.
func TestFullDiskGroup(t *testing.T) {
	f := newFixture(t)
	first, busy, release := f.run("first"), make(chan struct{}), make(chan struct{})
	ran := 0
	work := func(ctx context.Context, tx sqlite.Tx) error {
		if ran++; ran == 1 {
			close(busy)
			<-release
		}
		return mark("x")(ctx, tx)
	}
	names, errs := []string{"b", "c", "d"}, make([]error, 4)
	var all sync.WaitGroup
	all.Go(func() { errs[3] = f.complete(t.Context(), first, "", work) })
	<-busy
	for i, name := range names {
		all.Go(func() { _, errs[i] = f.Claim(t.Context(), request(f.worker, name)) })
	}
	time.Sleep(50 * time.Millisecond) // until they wait
	fillDisk(t, 0)
	close(release)
	all.Wait()
	for _, err := range errs {
		if !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
			t.Errorf("in a group without room: %v, want ErrFull of all", errs)
		}
	}
	emptyDisk()
	for _, name := range names {
		if _, err := f.Job(t.Context(), request(f.worker, name).Key); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%s without room: %v, want that there is none", name, err)
		}
		f.run(name)
	}
	if m := marks(t, raw(t, f.path)); f.state("first") != ledger.Running || len(m) != 0 {
		t.Errorf("without room the first is %s, with %d of the user's rows", f.state("first"), len(m))
	}
	if err := f.complete(t.Context(), first, "", work); err != nil || len(marks(t, raw(t, f.path))) != 1 {
		t.Errorf("the first with room: %v", err)
	}
}

// TestFullDiskAtTheIndex: a large commit has the log's index grow, and SQLite says something else when that finds no room.
func TestFullDiskAtTheIndex(t *testing.T) {
	f := newFixture(t)
	lease := f.run("a")
	large := mark(strings.Repeat("x", 20<<20)) // 5,000 pages, where the first part of the index has room for 4,000
	fillIndexes(t)
	if err := f.complete(t.Context(), lease, "", large); !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
		t.Errorf("without room: %v, want ErrFull", err)
	}
	if m := marks(t, raw(t, f.path)); f.state("a") != ledger.Running || len(m) != 0 {
		t.Errorf("without room the job is %s, with %d of the user's rows", f.state("a"), len(m))
	}
	emptyDisk()
	if err := f.complete(t.Context(), lease, "", large); err != nil || f.state("a") != ledger.Done || len(marks(t, raw(t, f.path))) != 1 {
		t.Errorf("with room: %v, the job is %s", err, f.state("a"))
	}
}

// TestFullDiskAtOpen: a ledger that is made, opened or looked at without room says so, and the same file serves as soon as there is some.
func TestFullDiskAtOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	untilRoom(t, "migrate", 9, func() error { return sqlite.Migrate(t.Context(), path) }, func() {
		steps, err := sqlite.MigrationStatus(t.Context(), path)
		for _, s := range steps {
			if err != nil || !s.Applied.IsZero() {
				t.Fatalf("after a migration without room: %+v, %v", s, err)
			}
		}
	})
	untilRoom(t, "open", 1, func() error {
		l, err := sqlite.Open(t.Context(), path)
		if err == nil {
			defer l.Close()
			err = l.Ping(t.Context())
		}
		return err
	}, func() {})
	untilRoom(t, "status", 1, func() error { _, err := sqlite.MigrationStatus(t.Context(), path); return err }, func() {})
	untilRoom(t, "a table of the user's", 1, func() error { return sqlite.Exec(t.Context(), path, "create table mark (m text)") }, func() {
		if n := scan[int](t, raw(t, path), "select count(*) from sqlite_schema where name = 'mark'"); n != 0 {
			t.Fatal("the table is there")
		}
	})
	l := open(t, path)
	w, err := l.Join(t.Context(), ledger.Worker{ID: "w1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := l.Claim(t.Context(), request(w, "a")); err != nil || c.Verdict != ledger.Run {
		t.Errorf("a claim with room: %s, %v", c.Verdict, err)
	}
}
