package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

func TestMigrationsAtOnceAndAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new file %41#.db")
	before, err := sqlite.MigrationStatus(t.Context(), path)
	if err != nil || len(before) == 0 || !before[0].Applied.IsZero() {
		t.Fatalf("status of a file that is not there: %+v %v", before, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("asking for the status made the file")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := sqlite.Migrate(t.Context(), path); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	if err := sqlite.Migrate(t.Context(), path); err != nil {
		t.Errorf("migrate again: %v", err)
	}
	after, err := sqlite.MigrationStatus(t.Context(), path)
	if err != nil || len(after) != len(before) || after[0].Applied.IsZero() {
		t.Fatalf("status: %+v %v", after, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file has another name: %v", err)
	}
	if err := open(t, path).Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestPrintMigrations(t *testing.T) {
	text, err := sqlite.PrintMigrations()
	if err != nil || !strings.Contains(text, "create table paidonce_job") {
		t.Fatalf("%v\n%.200s", err, text)
	}
	run(t, raw(t, filepath.Join(t.TempDir(), "x.db")), text) // it is plain SQL
}

// TestUnusableFiles: what Open and Migrate refuse, with a code and what to do.
func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, says string }{
		{"no file", filepath.Join(dir, "none.db"), "worker migrate up"},
		{"no folder", filepath.Join(dir, "no", "x.db"), "no folder"},
		{"a folder", dir, "no regular file"},
		{"a file as a folder", filepath.Join(text, "x.db"), "folder"},
		{"no database", text, "no SQLite database"},
		{"options", filepath.Join(dir, "x.db?mode=memory"), "options"},
		{"nothing", "", "no path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := sqlite.Open(t.Context(), c.path)
			if err == nil {
				l.Close()
			}
			if !is(err, sqlite.ErrFile) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("open: %v, want %q and ErrFile", err, c.says)
			}
			if err := sqlite.Migrate(t.Context(), c.path); c.name != "no file" && err == nil {
				t.Error("migrate took it")
			}
		})
	}
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, empty).Ping(t.Context()); !is(err, ledger.ErrSchema) || !strings.Contains(err.Error(), "worker migrate up") {
		t.Errorf("no schema: %v", err)
	}
	path := file(t)
	run(t, raw(t, path), "insert into paidonce_schema values (99, 'later', 0)")
	if err := open(t, path).Ping(t.Context()); !is(err, ledger.ErrSchema) || !strings.Contains(err.Error(), "99") {
		t.Errorf("a newer schema: %v", err)
	}
}

// readOnlyVariable makes the test binary a process without rights that opens the file it
// names: root may write whatever the file's rights say.
const readOnlyVariable = "SQLITE_TEST_READ_ONLY"

func TestReadOnlyFile(t *testing.T) {
	if path := os.Getenv(readOnlyVariable); path != "" {
		if _, err := sqlite.Open(t.Context(), path); !is(err, sqlite.ErrFile) || !strings.Contains(err.Error(), "rights") {
			t.Errorf("open: %v, want ErrFile", err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path, self := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "test")
	if err := sqlite.Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{path: 0o444, dir: 0o555} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, "-test.run=^TestReadOnlyFile$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), readOnlyVariable+"="+path)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestForbiddenRows writes each row that section 5 of the design forbids, straight
// into the tables.
func TestForbiddenRows(t *testing.T) {
	f := newFixture(t)
	db := raw(t, f.path)
	f.run("running")
	unknown := f.run("unknown")
	if err := f.Send(t.Context(), unknown, attempt()); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Release(t.Context(), unknown, ledger.Outcome{}); err != nil || r.State != ledger.Unknown {
		t.Fatalf("release: %+v %v", r, err)
	}
	if err := life(f.Ledger, f.worker, "done", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	const none = ", owner = null, owner_epoch = null, claim_token = null, run_deadline = null"
	for name, c := range map[string]struct{ job, set, constraint string }{
		"open calls below none":       {"running", "open_calls = -1", "open_calls >= 0"},
		"unknown without a call":      {"unknown", "open_calls = 0", "unknown_has_open_calls"},
		"done with an open call":      {"done", "open_calls = 1", "only_open_has_open_calls"},
		"ready with an open call":     {"unknown", "state = 'ready', unknown_at = null", "only_open_has_open_calls"},
		"running without an owner":    {"running", "owner = null, owner_epoch = null", "running_has_owner"},
		"running without a token":     {"running", "claim_token = null", "running_has_owner"},
		"running without a deadline":  {"running", "run_deadline = null", "running_has_owner"},
		"an owner without an epoch":   {"running", "owner_epoch = null", "owner_has_epoch"},
		"a token without a run":       {"unknown", "claim_token = x'00'", "only_running_has_token"},
		"an owner of a finished job":  {"done", "owner = 'w', owner_epoch = 1", "only_open_has_owner"},
		"a negative reserve":          {"running", "reserved = -1", "reserved >= 0"},
		"done without a result":       {"running", "state = 'done'" + none, "done_has_result"},
		"failed without an error":     {"running", "state = 'failed'" + none, "failed_has_error"},
		"unknown since never":         {"unknown", "unknown_at = null", "unknown_has_since"},
		"a state nobody knows":        {"running", "state = 'lost'", "state in"},
		"the ledger carries no input": {"running", "carrier = 'ledger', input_kept = 0", "ledger_carries_input"},
		"done becomes ready":          {"done", "state = 'ready'", "new generation"},
		"done gets another result":    {"done", "result_id = x'00'", "new generation"},
		"a fence that shrinks":        {"unknown", "fence = 1", "never shrink"},
		"no tenant":                   {"done", "tenant = ''", "tenant <> ''"},
		"a hash that is none":         {"done", "input_hash = x'00'", "length(input_hash)"},
		"the key of another":          {"done", "key = 'acme:invoice.extract:running'", "UNIQUE"},
		"money that is no integer":    {"running", "cost = 0.5", "cannot store REAL"},
	} {
		_, err := db.ExecContext(t.Context(), "update paidonce_job set "+c.set+" where key = 'acme:invoice.extract:"+c.job+"'")
		if err == nil || !strings.Contains(err.Error(), c.constraint) {
			t.Errorf("%s: %v, want a violation of %q", name, err, c.constraint)
		}
	}
	if _, err := db.ExecContext(t.Context(), "update paidonce_attempt set state = 'unknown', captured = null where state = 'received'"); err == nil {
		t.Error("a received attempt becomes unknown")
	}
	if n := run(t, db, "update paidonce_job set generation = generation + 1, state = 'ready' where state = 'done'"); n != 1 {
		t.Errorf("a new generation of a done job: %d rows", n)
	}
}

// acrossTenants lists the statements that may do without a tenant, each with its reason.
var acrossTenants = map[string]string{
	"sweepable":     "a sweeper looks after all tenants",
	"due":           "a sweeper looks after all tenants",
	"adoptable":     "a reconciler looks after all tenants",
	"adopted":       "a reconciler looks after all tenants",
	"flagged":       "the running jobs of one worker are of any tenant",
	"jobs":          "a listing for people, of one tenant or of all",
	"unknowns":      "a report over all tenants",
	"waiting":       "a report over all tenants",
	"budgets":       "a report for people, of one tenant or of all",
	"costs_calls":   "a report for people, of one tenant or of all",
	"costs_jobs":    "a report for people, of one tenant or of all",
	"costs_models":  "a report for people, of one tenant or of all",
	"costs_avoided": "a report for people, of one tenant or of all",
	"forgotten":     "a report for people, of one tenant or of all",
	"outbox_due":    "whoever publishes does so for all tenants",
	"outbox_count":  "a gauge over all tenants",
}

func TestTenantIsNamed(t *testing.T) { ledgertest.TenantIsNamed(t, "paidonce_", acrossTenants) }

// TestPlans explains every statement but those for people: none reads a table from
// end to end. (json_each is an argument; what a subquery found is no table.)
func TestPlans(t *testing.T) {
	db := raw(t, file(t))
	whole := map[string]bool{"jobs": true /* TestListings */, "sweep_workers": true, "version": true,
		"costs_calls": true, "costs_jobs": true, "costs_models": true, "costs_avoided": true, "forgotten": true, "outbox_count": true}
	files, err := filepath.Glob("sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if whole[strings.TrimSuffix(filepath.Base(name), ".sql")] {
			continue
		}
		rows, err := db.QueryContext(t.Context(), "explain query plan "+ledgertest.SQL(t, name), make([]any, 40)...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for rows.Next() {
			var id, parent, other int
			var detail string
			if err := rows.Scan(&id, &parent, &other, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") && !strings.Contains(detail, "CONSTANT ROW") && !strings.HasPrefix(detail, "SCAN (subquery-") && !strings.HasPrefix(detail, "SCAN json_each") {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
