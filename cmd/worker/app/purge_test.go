package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

const day = 24 * time.Hour

// agers are the kinds of ledgers. Each points the world at one, and returns what makes the
// only job in it older.
var agers = map[string]func(*world) func(time.Duration){
	"memory": func(w *world) func(time.Duration) {
		return func(d time.Duration) {
			w.t.Helper()
			for j, err := range w.ledger.Jobs(w.t.Context(), ledger.Filter{}) {
				if err := errors.Join(err, w.ledger.AgeRow(j.Key, d)); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	},
	"sqlite": func(w *world) func(time.Duration) {
		path := filepath.Join(w.t.TempDir(), "ledger.db")
		w.env = append(w.env, "PAIDONCE_LEDGER_URL=sqlite:"+path)
		return func(d time.Duration) {
			w.t.Helper()
			if err := sqlite.Exec(w.t.Context(), path, fmt.Sprintf("update paidonce_job set updated_at = updated_at - %d", d.Microseconds())); err != nil {
				w.t.Fatal(err)
			}
		}
	},
	"postgres": func(w *world) func(time.Duration) {
		url := pgtest.URL(w.t)
		w.env = append(w.env, "PAIDONCE_LEDGER_URL="+url)
		return func(d time.Duration) {
			w.t.Helper()
			days := int(d / day)
			var sql strings.Builder
			fmt.Fprintf(&sql, "set session_replication_role = replica; update paidonce.job set updated_at = updated_at - interval '%d days', part_on = part_on - %d", days, days)
			for _, table := range []string{"attempt", "event", "response", "result", "input"} {
				fmt.Fprintf(&sql, "; update paidonce.%s set part_on = part_on - %d", table, days)
			}
			pgtest.Exec(w.t, url, sql.String())
		}
	},
}

// TestPurgedJobsAreNotPaidAgain: a redelivery of a job whose result is gone is acknowledged
// and counted, and one whose key is gone too is a new job.
func TestPurgedJobsAreNotPaidAgain(t *testing.T) {
	t.Parallel()
	for name, ager := range agers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldHere(t)
			ms := w.models(modelserver.Options{})
			age := ager(w)
			w.env = append(w.env, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
			if name != "memory" {
				w.must("", "migrate", "up")
			}
			w.submitted()
			r := w.start()
			url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
			w.until(ticketKey, "done")
			age(60 * day)
			if got := w.purged(); got.Rows != 3 || got.Keys != 0 || len(got.InUse) != 0 {
				t.Errorf("purged %+v, want result, answer and input", got)
			}
			w.submitted()
			eventually(t, func() (bool, string) {
				_, m := get(t, url+"/metrics")
				return strings.Contains(m, `paidonce_claims_total{job="ticket.summary",verdict="purged"} 1`) &&
					strings.Contains(m, `paidonce_calls_avoided_total{cause="duplicate_message",job="ticket.summary"} 1`) &&
					strings.Contains(m, `paidonce_deliveries_total{job="ticket.summary",outcome="acked"} 2`), "the redelivery to be counted and acknowledged:\n" + m
			})
			if n := len(ms.Bill()); n != 1 {
				t.Errorf("the bill has %d lines", n)
			}
			var d jobDocument
			if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &d); err != nil {
				t.Fatal(err)
			}
			if d.State != ledger.Done || string(d.Result) != "null" || !d.Purged || len(d.Attempts) != 1 || len(d.History) == 0 {
				t.Errorf("the tombstone is %+v", d)
			}
			if out := w.must("", "jobs", "show", ticketKey); !strings.Contains(out, "past its retention") {
				t.Errorf("jobs show says\n%s", out)
			}
			age(500 * day)
			if got := w.purged(); got.Keys != 1 {
				t.Errorf("purged %+v, want one key", got)
			}
			if s := w.state(ticketKey); s != "" {
				t.Errorf("the forgotten job is %s", s)
			}
			w.submitted()
			w.until(ticketKey, "done")
			r.stop()
			if n := len(ms.Bill()); n != 2 {
				t.Errorf("the bill has %d lines, want a second one for the new job", n)
			}
		})
	}
}

// purged runs the command, and returns its document.
func (w *world) purged() (d purgeDocument) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.must("", "purge", "--json")), &d); err != nil {
		w.t.Fatal(err)
	}
	if d.Retention.Result != "30d" || d.Retention.Key != "400d" {
		w.t.Errorf("the retention is %+v", d.Retention)
	}
	return d
}

func TestPurgeCommand(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.claimed(ledger.Key{Tenant: "acme", Text: ticketKey})
	want := "0 keys forgotten, 0 rows deleted, 0 partitions dropped, 0 jobs moved out of their way\n"
	if out := w.must("", "purge"); out != want {
		t.Errorf("with nothing to purge it says %q", out)
	}
	if out := w.must("", "purge", "--json"); !strings.Contains(out, `"partitions": []`) || !strings.Contains(out, `"in_use": []`) {
		t.Errorf("purge --json says %s", out)
	}
	for name, c := range map[string]struct {
		env  string
		code int
		want string
	}{
		"an empty ledger of its own": {"PAIDONCE_LEDGER_URL=memory:", exitUsage, "PO504"},
		"a retention of nothing":     {"PAIDONCE_RETENTION_RESULT=0s", exitUsage, "PO036 retention.result"},
		"a key before its result":    {"PAIDONCE_RETENTION_KEY=1d", exitUsage, "PO032"},
		"no schema":                  {"PAIDONCE_LEDGER_URL=" + pgtest.URL(t), exitFailed, "PO213"},
	} {
		o := newWorldHere(t)
		o.ledger = nil
		o.env = append(o.env, c.env)
		t.Log(name)
		o.refused(c.code, "", []string{"purge"}, c.want)
	}
}

// script is a ledger whose purges are written down; each one is a list of steps, which ends with
// an error or without. The step after a duration takes so much longer.
type script struct {
	*ledgermemory.Ledger
	purges [][]any
	begun  []time.Time
	asked  ledger.Retention
	steps  []time.Time
}

func (s *script) Purge(ctx context.Context, r ledger.Retention) iter.Seq2[ledger.PurgeStep, error] {
	s.begun, s.asked = append(s.begun, time.Now()), r
	return func(yield func(ledger.PurgeStep, error) bool) {
		if len(s.purges) == 0 {
			return
		}
		steps := s.purges[0]
		s.purges = s.purges[1:]
		for _, step := range steps {
			if d, ok := step.(time.Duration); ok {
				time.Sleep(d)
				continue
			}
			time.Sleep(100 * time.Millisecond)
			err, _ := step.(error)
			st, _ := step.(ledger.PurgeStep)
			s.steps = append(s.steps, time.Now())
			if !yield(st, err) || err != nil {
				return
			}
		}
	}
}

// purging is a worker that does nothing but purge, and its log.
func purging(t *testing.T, s *script) (*worker, *lockedBuffer) {
	t.Helper()
	cfg, err := config.Load(config.Options{Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()})
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	return &worker{cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil)), store: s}, &log
}

// TestPurgeTellsWhatIsLeft: of what it did whatever happens, and that something is left.
func TestPurgeTellsWhatIsLeft(t *testing.T) {
	t.Chdir(t.TempDir())
	inUse := ledger.PurgeStep{Partition: "result_20260112", InUse: true}
	for name, c := range map[string]struct {
		steps          []any
		err            string
		stdout, stderr string
	}{
		"in use": {[]any{ledger.PurgeStep{Partition: "result_20260105", Rows: 1000}, inUse, ledger.PurgeStep{InUse: true}, ledger.PurgeStep{Keys: 3}},
			"PO518 others held result_20260112, rows for too long, so a part is left; purge again later",
			"3 keys forgotten, 1000 rows deleted, 1 partitions dropped, 0 jobs moved out of their way\n",
			"dropped result_20260105 with about 1000 rows\nin use, left to the next purge: result_20260112\n"},
		"broken off": {[]any{ledger.PurgeStep{Keys: 3, Rows: 9}, errors.New("the server is away")},
			"PO517 the purge broke off; what it did before stays done: the server is away",
			"3 keys forgotten, 9 rows deleted, 0 partitions dropped, 0 jobs moved out of their way\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{Ledger: ledgermemory.New(), purges: [][]any{c.steps}}
			w, _ := purging(t, s)
			var stdout, stderr bytes.Buffer
			err := purgeCommand{}.purge(t.Context(), &call{Process: Process{Stdout: &stdout, Stderr: &stderr}}, w.cfg, s)
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			if stdout.String() != c.stdout || stderr.String() != c.stderr {
				t.Errorf("%s: it says\n%s%swant\n%s%s", name, &stderr, &stdout, c.stderr, c.stdout)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a long one, which is told of now and then, and ended by a signal
		many := []any{}
		for range 1000 {
			many = append(many, ledger.PurgeStep{Keys: 1})
		}
		s := &script{Ledger: ledgermemory.New(), purges: [][]any{many}}
		w, _ := purging(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		var stdout, stderr bytes.Buffer
		err := purgeCommand{asJSON{true}}.purge(ctx, &call{Process: Process{Stdout: &stdout, Stderr: &stderr}}, w.cfg, s)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
		var d purgeDocument
		if err := json.Unmarshal(stdout.Bytes(), &d); err != nil || d.Keys < 54 || d.Keys > 56 {
			t.Errorf("%d keys in 11 s (%v)", d.Keys, err)
		}
		if n := strings.Count(stderr.String(), "so far: "); n != 2 {
			t.Errorf("told %d times in 11 s:\n%s", n, &stderr)
		}
	})
}

// TestPurgesEveryHour: first some minutes after the start, then every hour, whatever became of the last
// one; and what became of it is said once.
func TestPurgesEveryHour(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		s := &script{Ledger: ledgermemory.New(), purges: [][]any{
			{ledger.PurgeStep{Keys: 7, Rows: 20}, ledger.PurgeStep{Partition: "result_20260105", Rows: 1000}, ledger.PurgeStep{Moved: 3}},
			{errors.New("the server is away")},
			{ledger.PurgeStep{Partition: "result_20260112", InUse: true}, ledger.PurgeStep{InUse: true}},
			{ledger.PurgeStep{Partition: "result_20260119"}},
		}}
		w, log := purging(t, s)
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.purges(ctx); close(done) }()
		time.Sleep(5 * time.Hour)
		cancel()
		<-done
		if len(s.begun) < 5 {
			t.Fatalf("%d purges in five hours", len(s.begun))
		}
		if first := s.begun[0].Sub(start); first < purgeFirst/2 || first >= 2*purgeFirst {
			t.Errorf("the first purge came after %s", first)
		}
		for i := 1; i < len(s.begun); i++ {
			if d := s.begun[i].Sub(s.begun[i-1]); d < 54*time.Minute || d > 67*time.Minute {
				t.Errorf("purge %d came after %s", i+1, d)
			}
		}
		if s.asked != (ledger.Retention{Result: 30 * day, Key: 400 * day}) {
			t.Errorf("it asks for %+v", s.asked)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		for i, want := range []string{
			"level=INFO msg=purged keys=7 rows=1020 moved=3 partitions=[result_20260105]",
			`level=WARN msg="PO517 the purge broke off; it is tried again" error="the server is away" in=`,
			`level=WARN msg="PO518 others held what is past its retention for too long; it is tried again" in_use="[result_20260112 rows]" in=`,
			"level=INFO msg=purged keys=0 rows=0 moved=0 partitions=[result_20260119]",
		} {
			if len(lines) != 4 || !strings.Contains(lines[i], want) {
				t.Errorf("line %d of %d lacks %s:\n%s", i+1, len(lines), want, log.String())
			}
		}
	})
}

// TestPurgeEndsWithTheWorker: that one broke off for it is nothing to tell.
func TestPurgeEndsWithTheWorker(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		w, log := purging(t, &script{Ledger: ledgermemory.New(), purges: [][]any{{time.Hour, ledger.PurgeStep{Keys: 1}, ledger.PurgeStep{Keys: 1}}}})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		w.purges(ctx)
		if log.String() != "" {
			t.Errorf("it says\n%s", log.String())
		}
	})
}

// TestPurgeRests: a purge leaves others as much time as it takes, up to a second at a time.
func TestPurgeRests(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		s := &script{Ledger: ledgermemory.New(), purges: [][]any{{ledger.PurgeStep{Keys: 1}, ledger.PurgeStep{Keys: 1}, 3 * time.Second, ledger.PurgeStep{Keys: 1}, ledger.PurgeStep{Keys: 1}}}}
		w, _ := purging(t, s)
		var at []time.Duration
		start := time.Now()
		if err := purge(t.Context(), s, w.cfg, brisk, func(ledger.PurgeStep) { at = append(at, time.Since(start)) }); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 3500 * time.Millisecond, 4600 * time.Millisecond}; !slices.Equal(at, want) {
			t.Errorf("steps at %v, want %v", at, want)
		}
	})
}

// TestPurgeOfAWorkerDropsSlowly: nobody waits for it, and each drop holds claims up.
func TestPurgeOfAWorkerDropsSlowly(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		s := &script{Ledger: ledgermemory.New(), purges: [][]any{{ledger.PurgeStep{Partition: "input_20260105"}, ledger.PurgeStep{Partition: "result_20260105"}}}}
		w, _ := purging(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		w.purges(ctx)
		if len(s.steps) != 2 || s.steps[1].Sub(s.steps[0]) < time.Minute {
			t.Errorf("drops at %v, want them a minute apart", s.steps)
		}
	})
}

// TestRunPurges: a worker purges by itself, with nothing asked for. It is alone, since every worker reads what it changes.
func TestRunPurges(t *testing.T) {
	defer func(d time.Duration) { purgeFirst = d }(purgeFirst)
	purgeFirst = time.Second
	w := newWorldHere(t)
	w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_RETENTION_RESULT=1d", "PAIDONCE_RETENTION_KEY=2d")
	w.submitted()
	r := w.start()
	r.says(`"msg":"(PO555) retention.key 48h0m0s`)
	w.until(ticketKey, "done")
	agers["memory"](w)(3 * day)
	eventually(t, func() (bool, string) { s := w.state(ticketKey); return s == "", "the old job is " + s })
	r.says(`"msg":"purged","keys":1`)
	r.stop()
}
