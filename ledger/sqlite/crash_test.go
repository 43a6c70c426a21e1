package sqlite_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// intact checks the file, and that what the lines say was answered is in it: no call that
// was sent, no result and none of the user's rows is forgotten.
func intact(t *testing.T, path string, lines []string) {
	t.Helper()
	db := raw(t, path)
	if s := scan[string](t, db, "pragma integrity_check"); s != "ok" {
		t.Fatalf("integrity: %s", s)
	}
	l := open(t, path)
	if err := l.Ping(t.Context()); err != nil {
		t.Fatalf("ping: %v", err)
	}
	committed := marks(t, db)
	slices.Sort(committed)
	for i := range committed {
		if i > 0 && committed[i] == committed[i-1] {
			t.Errorf("the user's row of %s is there twice", committed[i])
		}
	}
	for _, line := range lines {
		words := strings.Fields(line)
		j, err := l.Job(t.Context(), ledger.Key{Tenant: "acme", Text: words[1]})
		if err != nil {
			t.Fatalf("%q was answered: %v", line, err)
		}
		_, marked := slices.BinarySearch(committed, words[1])
		switch {
		case words[0] == "sent" && (len(j.Attempts) != 1 || j.Attempts[0].ID.String() != words[2]):
			t.Errorf("%q was answered, and the attempts are %+v", line, j.Attempts)
		case words[0] == "applied" && (len(j.Attempts) != 1 || j.Attempts[0].Applied.IsZero()):
			t.Errorf("%q was answered, and the attempts are %+v", line, j.Attempts)
		case words[0] == "done" && (j.State != ledger.Done || j.Result == nil || !marked):
			t.Errorf("%q was answered: %s, result %v, the user's row %v", line, j.State, j.Result != nil, marked)
		}
	}
	// The other way round: rows that belong together were committed together.
	for what, query := range map[string]string{
		"jobs whose open calls are miscounted":   "select count(*) from paidonce_job j where open_calls <> (select count(*) from paidonce_attempt a where a.tenant = j.tenant and a.job = j.id and a.state = 'sent')",
		"jobs without all their events":          "select count(*) from paidonce_job j where events <> (select count(*) from paidonce_event e where e.tenant = j.tenant and e.job = j.id)",
		"answers without a body":                 "select count(*) from paidonce_attempt a where state = 'received' and not exists (select 1 from paidonce_response r where r.tenant = a.tenant and r.job = a.job and r.attempt = a.id)",
		"done jobs without a result":             "select count(*) from paidonce_job j where state = 'done' and not exists (select 1 from paidonce_result r where r.tenant = j.tenant and r.job = j.id)",
		"done jobs without the user's row":       "select count(*) from paidonce_job where state = 'done' and key not in (select m from mark)",
		"done jobs without their step":           "select count(*) from paidonce_job j where state = 'done' and not exists (select 1 from paidonce_step s join paidonce_job m on m.tenant = s.tenant and m.key = s.key where s.tenant = j.tenant and s.job = j.id)",
		"steps without a done job":               "select count(*) from paidonce_job j where action = 'email' and not exists (select 1 from paidonce_step s join paidonce_job m on m.tenant = s.tenant and m.id = s.job where s.tenant = j.tenant and s.key = j.key and m.state = 'done')",
		"applied answers without the user's row": "select count(*) from paidonce_attempt where applied_at is not null and lower(hex(id)) not in (select replace(m, '-', '') from early)",
		"the user's rows of no applied answer":   "select count(*) from early where replace(m, '-', '') not in (select lower(hex(id)) from paidonce_attempt where applied_at is not null)",
		"the user's rows of one answer twice":    "select count(*) - count(distinct m) from early",
		"user's rows without a done job":         "select count(*) from mark where m not in (select key from paidonce_job where state = 'done')",
	} {
		if n := scan[int](t, db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// TestKill9 kills a process in the middle of its work, several times.
func TestKill9(t *testing.T) {
	path := file(t)
	var all []string
	for round := range 4 {
		p := child(t, path)
		for range 150 + 97*round {
			line, ok := <-p.lines
			if !ok {
				t.Fatalf("the child ended by itself: %v", p.Wait())
			}
			all = append(all, line)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for line := range p.lines { // what it said before it died
			all = append(all, line)
		}
		_ = p.Wait() // killed
		intact(t, path, all)
	}
}

// TestTornWAL: the end of the WAL is garbage after a crash of the machine. What was
// committed before it stays, and the rest is as if it had not been.
func TestTornWAL(t *testing.T) {
	path := file(t)
	p := child(t, path)
	var lines []string
	for range 200 {
		lines = append(lines, <-p.lines)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for line := range p.lines {
		lines = append(lines, line)
	}
	_ = p.Wait()
	wal, err := os.ReadFile(path + "-wal")
	if err != nil || len(wal) == 0 {
		t.Fatalf("the WAL: %d bytes, %v", len(wal), err)
	}
	for name, torn := range map[string][]byte{
		"garbage after the last commit": append(slices.Clone(wal), bytes.Repeat([]byte{0xa5}, 10_000)...),
		"half a frame":                  append(slices.Clone(wal), wal[32:32+2000]...),
		"a frame of before":             append(slices.Clone(wal), wal[32:32+24+4096]...),
	} {
		t.Run(name, func(t *testing.T) {
			other := t.TempDir() + "/ledger.db"
			main, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(other, main, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(other+"-wal", torn, 0o600); err != nil {
				t.Fatal(err)
			}
			intact(t, other, lines)
		})
	}
}

// TestTwoProcesses: two processes load one file, and this one reads and writes too.
func TestTwoProcesses(t *testing.T) {
	path := file(t)
	a, b := child(t, path), child(t, path)
	l := open(t, path)
	w, err := l.Join(t.Context(), ledger.Worker{ID: "parent", TTL: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := life(l, w, string(rune('a'+i)), func(string, ...any) {}); err != nil {
			t.Errorf("beside two processes: %v", err)
		}
	}
	var lines []string
	for _, p := range []*process{a, b} {
		for range 100 {
			line, ok := <-p.lines
			if !ok {
				t.Fatalf("a child ended by itself: %v", p.Wait())
			}
			lines = append(lines, line)
		}
	}
	for _, p := range []*process{a, b} {
		p.stop()
		for line := range p.lines {
			lines = append(lines, line)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("a child ended with %v", err)
		}
	}
	intact(t, path, lines)
}

// TestHeldLock: a process that does not let go of the file is named, in bounded time,
// and nothing is lost by it.
func TestHeldLock(t *testing.T) {
	path := file(t)
	l := open(t, path)
	db := raw(t, path)
	tx, err := db.Begin() // immediate
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Join(t.Context(), ledger.Worker{ID: "w", TTL: 1 << 40}); !is(err, sqlite.ErrBusy) {
		t.Errorf("join while another holds the lock: %v, want ErrBusy", err)
	}
	if _, err := l.Job(t.Context(), ledger.Key{Tenant: "a", Text: "b"}); !is(err, ledger.ErrNotFound) {
		t.Errorf("a read while another holds the lock: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if id, err := l.Join(t.Context(), ledger.Worker{ID: "w", TTL: 1 << 40}); err != nil || id.Epoch != 1 {
		t.Errorf("join afterwards: %+v %v", id, err)
	}
}
