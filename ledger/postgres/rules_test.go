package postgres_test

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// ended is what a running job loses with its run.
const ended = ", owner = null, owner_epoch = null, claim_token = null, run_deadline = null"

// forbidden are rows that the schema forbids, each by one rule alone: a job's by what is set, any other's by what it has
// instead of what a good one has.
var forbidden = []struct{ what, rule, job, set string }{
	{"open calls below none", "job_open_calls_check", "running", "open_calls = -1"},
	{"unknown without an open call", "unknown_has_open_calls", "unknown", "open_calls = 0, open_until = null"},
	{"done with an open call", "only_open_has_open_calls", "done", "open_calls = 1, open_until = now()"},
	{"ready with an open call", "only_open_has_open_calls", "unknown", "state = 'ready', unknown_at = null"},
	{"running without an owner", "running_has_owner", "running", "owner = null, owner_epoch = null"},
	{"running without a token", "running_has_owner", "running", "claim_token = null"},
	{"running without a deadline", "running_has_owner", "running", "run_deadline = null"},
	{"an owner without an epoch", "owner_has_epoch", "running", "owner_epoch = null"},
	{"an epoch without an owner", "owner_has_epoch", "ready", "owner_epoch = 1"},
	{"a token without a run", "only_running_has_token", "unknown", "claim_token = gen_random_uuid()"},
	{"a deadline without a run", "only_running_has_token", "unknown", "run_deadline = now()"},
	{"an owner of a finished job", "only_open_has_owner", "done", "owner = 'w', owner_epoch = 1"},
	{"an owner of a job that waits", "only_open_has_owner", "ready", "owner = 'w', owner_epoch = 1"},
	{"a negative reserve", "job_reserved_check", "running", "reserved = -1"},
	{"open calls without a horizon", "open_calls_have_horizon", "unknown", "open_until = null"},
	{"a horizon of nothing", "open_calls_have_horizon", "running", "open_until = now()"},
	{"done without a result", "done_has_result", "running", "state = 'done', done_at = now()" + ended},
	{"done at no time", "done_has_result", "done", "done_at = null"},
	{"failed without an error", "failed_has_error", "running", "state = 'failed'" + ended},
	{"unknown since never", "unknown_has_since", "unknown", "unknown_at = null"},
	{"unknown once", "unknown_has_since", "running", "unknown_at = now()"},
	{"a state nobody knows", "job_state_check", "ready", "state = 'lost'"},
	{"the ledger carries no input", "ledger_carries_input", "running", "carrier = 'ledger', input_kept = false"},
	{"done becomes ready", "done_is_final", "done", "state = 'ready'"},
	{"done gets another result", "done_is_final", "done", "result_id = gen_random_uuid()"},
	{"a fence that shrinks", "fence_grows", "unknown", "fence = 1"},
	{"a generation that shrinks", "fence_grows", "second", "generation = 1"},
	{"an older partition", "fence_grows", "done", "part_on = part_on - 1"},
	{"runs below none", "job_runs_check", "running", "runs = -1"},
	{"panics below none", "job_panics_check", "running", "panics = -1"},
	{"replays below none", "job_replays_check", "running", "replays = -1"},
	{"a negative budget", "job_budget_check", "running", "budget = -1"},
	{"a carrier nobody knows", "job_carrier_check", "second", "carrier = 'pigeon'"},
	{"no key", "job_key_check", "done", "key = ''"},
	{"no tenant", "job_tenant_check", "done", "tenant = ''"},
	{"a hash that is none", "job_input_hash_check", "done", "input_hash = 'x'"},
}

// forbiddenNew are rows that cannot be put in, by their table; the base is a good one.
var forbiddenNew = map[string]struct {
	base string // JSON
	bad  []struct{ rule, has string }
}{
	"job": {`{"id": 999, "tenant": "acme", "key": "k", "action": "a", "input_hash": "\\x` + zeros + `", "input_kept": true, "part_on": "2026-01-01", "state": "ready", "generation": 1,
		"fence": 1, "carrier": "ledger", "next_at": "2026-01-01", "cancel": false, "runs": 0, "panics": 0, "replays": 0, "receives": 0, "open_calls": 0, "attempts": 0, "events": 0,
		"late": 0, "reserved": 0, "budget": 0, "created_at": "2026-01-01", "updated_at": "2026-01-01"}`,
		[]struct{ rule, has string }{{"job_generation_check", `{"generation": 0}`}, {"job_fence_check", `{"fence": 0}`}}},
	"attempt": {`{"tenant": "acme", "job": 1, "id": "` + uuid + `", "part_on": "2026-01-01", "generation": 1, "n": 1, "fence": 1, "state": "sent", "call_name": "c", "input_key": "", "route": "r",
		"provider": "p", "model": "m", "config": "", "client_request_id": "", "timeout": "1h", "reserve": 0, "late_seen": 0, "sent_at": "2026-01-01", "class": "", "seen_by": "", "who": "", "reason": "", "status": 0,
		"provider_request_id": "", "object_id": "", "cost_source": "", "surplus": false}`,
		[]struct{ rule, has string }{{"attempt_state_check", `{"state": "lost", "ended_at": "2026-01-01"}`}, {"attempt_reserve_check", `{"reserve": -1}`},
			{"attempt_check", `{"ended_at": "2026-01-01"}`}, {"attempt_check", `{"state": "failed"}`},
			{"attempt_check1", `{"captured": 1}`}, {"attempt_check1", `{"state": "received", "ended_at": "2026-01-01"}`}}},
	"chunk": {`{"tenant": "acme", "job": 1, "hash": "\\x` + zeros + `", "n": 0, "part_on": "2026-01-01", "body": "\\x00"}`,
		[]struct{ rule, has string }{{"chunk_hash_check", `{"hash": "\\x00"}`}}},
	"dup_count": {`{"tenant": "acme", "day": "2026-01-01", "action": "a", "cause": "ack_lost", "n": 1, "saved": 0, "unpriced": 0}`,
		[]struct{ rule, has string }{{"dup_count_tenant_check", `{"tenant": ""}`}, {"dup_count_cause_check", `{"cause": "rain"}`}, {"dup_count_n_check", `{"n": 0}`},
			{"dup_count_saved_check", `{"saved": -1}`}, {"dup_count_check", `{"unpriced": 2}`}, {"dup_count_check", `{"unpriced": -1}`}}},
	"budget":      {`{"tenant": "acme", "action": "", "day": "2026-01-01", "cap": 1, "cost": 0, "reserved": 0}`, []struct{ rule, has string }{{"budget_tenant_check", `{"tenant": ""}`}}},
	"floor":       {`{"tenant": "acme", "until": "2026-01-01"}`, []struct{ rule, has string }{{"floor_tenant_check", `{"tenant": ""}`}}},
	"rerun_token": {`{"tenant": "acme", "job": 1, "token": "t", "at": "2026-01-01"}`, []struct{ rule, has string }{{"rerun_token_token_check", `{"token": ""}`}}},
	"outbox": {`{"tenant": "acme", "job": 1, "result": "` + uuid + `", "n": 1, "generation": 1, "action": "a", "next_at": "2026-01-01", "body": "\\x00"}`,
		[]struct{ rule, has string }{{"outbox_tenant_check", `{"tenant": ""}`}}},
	"step": {`{"tenant": "acme", "job": 1, "key": "k", "generation": 1, "n": 1, "action": "a", "input_hash": "\\x` + zeros + `"}`,
		[]struct{ rule, has string }{{"step_tenant_check", `{"tenant": ""}`}, {"step_key_check", `{"key": ""}`}, {"step_input_hash_check", `{"input_hash": "\\x00"}`}}},
	"worker": {`{"id": "w", "epoch": 1, "lease_until": "2026-01-01", "host": "h", "pid": 1, "version": "v", "config": "c", "joined_at": "2026-01-01"}`,
		[]struct{ rule, has string }{{"worker_epoch_check", `{"epoch": 0}`}}},
}

const (
	uuid  = "00000000-0000-0000-0000-000000000001"
	zeros = "0000000000000000000000000000000000000000000000000000000000000000"
)

// TestForbiddenRows (case 65) writes each row that section 5 of the design forbids, straight into the tables. Each is refused by the rule that it
// breaks, by its name, and by that one alone: without it the row is taken. No rule is without a row.
func TestForbiddenRows(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	f.forRules()
	want := f.rules()
	for _, c := range forbidden {
		want[c.rule] = true
		f.forbids(c.what, c.rule, "job", "update paidonce.job set "+c.set+" where key = 'acme:invoice.extract:"+c.job+"'")
	}
	for table, c := range forbiddenNew {
		const insert = "insert into paidonce.%T overriding system value select r.* from jsonb_populate_record(null::paidonce.%T, '%J') r"
		row := strings.ReplaceAll(insert, "%T", table)
		f.trying("a good "+table, strings.Replace(row, "%J", c.base, 1), "")
		for _, b := range c.bad {
			want[b.rule] = true
			f.forbids("a "+table+" with "+b.has, b.rule, table, strings.Replace(row, "'%J'", "'"+c.base+"'::jsonb || '"+b.has+"'", 1))
		}
	}
	for rule, tested := range want {
		if !tested {
			t.Errorf("no row breaks the rule %s", rule)
		}
	}
	f.trying("the key of another", "update paidonce.job set key = 'acme:invoice.extract:running' where key = 'acme:invoice.extract:done'", "job_key_tenant_key")
	final := "update paidonce.attempt set state = 'unknown', captured = null where state = 'received' and job = (select id from paidonce.job where key like '%:done')"
	f.trying("a received attempt becomes unknown", final, "a received attempt never changes its state")
	f.trying("the same without its rule", "drop trigger received_is_final on paidonce.attempt; "+final, "")
	f.trying("a new generation of a done job", "update paidonce.job set generation = generation + 1, state = 'ready' where key like '%:done'", "")
}

// forRules makes the jobs of the rows.
func (f *fixture) forRules() {
	f.Helper()
	f.run(f.request("running"))
	open := f.run(f.request("unknown"))
	if err := f.Send(f.Context(), open, attempt()); err != nil {
		f.Fatal(err)
	}
	if r, err := f.Release(f.Context(), open, ledger.Outcome{}); err != nil || r.State != ledger.Unknown {
		f.Fatalf("release: %+v %v", r, err)
	}
	if r, err := f.Release(f.Context(), f.run(f.request("ready")), ledger.Outcome{}); err != nil || r.State != ledger.Ready {
		f.Fatalf("release: %+v %v", r, err)
	}
	for _, name := range []string{"done", "second"} {
		if err := f.life(f.Context(), name, false); err != nil {
			f.Fatal(err)
		}
	}
	run(f.T, f.db, "update paidonce.job set generation = 2 where key like '%:second'")
}

// guard is the function with the rules of jobs that are no CHECKs.
func (f *fixture) guard() string {
	f.Helper()
	return scan[string](f.T, f.db, "select pg_get_functiondef('paidonce.guard_job'::regproc)")
}

// rules are the names of all: of the CHECKs, and of what the guard says.
func (f *fixture) rules() map[string]bool {
	f.Helper()
	rows, err := f.db.Query(f.Context(), `select c.conname::text from pg_constraint c join pg_class r on r.oid = c.conrelid
		where c.contype = 'c' and c.connamespace = 'paidonce'::regnamespace and not r.relispartition`)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	all := map[string]bool{}
	for _, n := range names {
		all[n] = false
	}
	for _, m := range regexp.MustCompile(`then '(\w+)'`).FindAllStringSubmatch(f.guard(), -1) {
		all[m[1]] = false
	}
	if len(all) < 40 {
		f.Fatalf("the schema has the rules %v alone", slices.Sorted(maps.Keys(all)))
	}
	return all
}

// forbids wants the statement to be refused by the rule, and by no other.
func (f *fixture) forbids(what, rule, table, statement string) {
	f.Helper()
	f.trying(what, statement, rule)
	without := regexp.MustCompile("(?m)^.* then '"+rule+"'$").ReplaceAllString(f.guard(), "")
	if without == f.guard() {
		without = "alter table paidonce." + table + " drop constraint " + rule
	}
	f.trying(what+", without the rule "+rule, without+"; "+statement, "")
}

// trying makes a statement and takes it back. It must be refused by a rule of that name; "": it must change one row.
func (f *fixture) trying(what, statement, rule string) {
	f.Helper()
	conn, err := f.db.Acquire(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer tx.Rollback(f.Context())
	var rows int64
	for _, part := range strings.SplitAfter(statement, "; ") {
		tag, perr := tx.Exec(f.Context(), part)
		rows, err = tag.RowsAffected(), cmp.Or(err, perr)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case rule == "" && (err != nil || rows != 1):
		f.Errorf("%s: %d rows, %v", what, rows, err)
	case rule != "" && (!ok || e.Code[:2] != "23" || e.ConstraintName != rule && !strings.HasPrefix(e.Message, rule)):
		f.Errorf("%s: %v, want a violation of %q", what, err, rule)
	}
}
