package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// limit has pgbench take jobs through the ledger's own statements, in batches of each size, and prints what the
// server alone makes of them: no broker, no consumer, no Go. Beside them are the naive loop's statements.
func limit(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench limit", flag.ContinueOnError)
	sizes := f.String("b", "1,4,16,64,128", "jobs that share a statement")
	lasts := f.Duration("t", 10*time.Second, "how long each turn lasts")
	sources := f.String("sql", "../ledger/postgres/sql", "folder of the ledger's statements")
	if err := f.Parse(args); err != nil {
		return err
	}
	fmt.Printf("limit: pgbench, 4 connections (naive: 10), prepared statements, turns of %v; %d CPUs, load %s\n", *lasts, runtime.NumCPU(), load())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "statements\tjobs each\tjobs/s\tpg us/job\tpgbench us/job\tfsync/job\tWAL B/job\t")
	for _, size := range append([]string{"naive"}, strings.Split(*sizes, ",")...) {
		made, err := limitOf(ctx, size, *sources, *lasts)
		if err != nil {
			return fmt.Errorf("batches of %s: %w", size, err)
		}
		fmt.Fprintln(w, made)
	}
	return w.Flush()
}

// bounded is one turn of pgbench.
type bounded struct {
	name             string
	batch, jobs      int
	took             time.Duration
	postgres, client time.Duration // CPU
	fsyncs, wal      int64
}

func (b bounded) String() string {
	n := float64(b.jobs)
	return fmt.Sprintf("%s\t%d\t%.0f\t%.0f\t%.0f\t%.3f\t%.0f\t", b.name, b.batch, n/b.took.Seconds(),
		float64(b.postgres.Microseconds())/n, float64(b.client.Microseconds())/n, float64(b.fsyncs)/n, float64(b.wal)/n)
}

// limitOf runs one turn on a server of its own. size is "naive" or how many jobs share a statement.
func limitOf(ctx context.Context, size, sources string, lasts time.Duration) (b bounded, err error) {
	defer refused(&err)
	r := &room{name: "limit"}
	defer r.close()
	server := pgtest.StartDurable(r)
	url := server.URL(r)
	b = bounded{name: size, batch: 1}
	clients, script, count := 10, naiveScript, "select count(*) from naive where state = 'done'"
	if size == "naive" {
		err = execute(ctx, url, naiveTable)
	} else {
		clients, count, b.name = 4, "select count(*) from paidonce.job where state = 'done'", "paidonce"
		if b.batch, err = strconv.Atoi(size); err != nil {
			return b, err
		}
		if script, err = oursScript(sources, b.batch); err == nil {
			err = joined(ctx, url)
		}
	}
	if err != nil {
		return b, err
	}
	for _, warm := range []bool{true, false} { // statements are planned, and tables analysed, before the measured turn
		if err := b.run(ctx, server, url, script, count, clients, lasts, warm); err != nil {
			return b, err
		}
	}
	return b, nil
}

// joined makes the schema and the worker that the jobs belong to.
func joined(ctx context.Context, url string) error {
	if err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.Join(ctx, ledger.Worker{ID: "limit", TTL: 24 * time.Hour})
	return err
}

// run lets pgbench work, and measures it unless it only warms the tables up.
func (b *bounded) run(ctx context.Context, server *pgtest.Server, url, script, count string, clients int, lasts time.Duration, warm bool) error {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	pid, err := server.PID()
	if err != nil {
		return err
	}
	jobs, fsyncs, wal, err := b.look(ctx, admin, count)
	if err != nil {
		return err
	}
	used, err := cpu(pid)
	if err != nil {
		return err
	}
	if warm {
		lasts = 3 * time.Second
	}
	began := time.Now()
	if b.client, err = pgbench(ctx, url, script, clients, lasts); err != nil {
		return err
	}
	b.took = time.Since(began)
	after, err := cpu(pid)
	if err != nil {
		return err
	}
	jobs2, fsyncs2, wal2, err := b.look(ctx, admin, count)
	if err != nil {
		return err
	}
	b.jobs, b.postgres, b.fsyncs, b.wal = jobs2-jobs, after-used, fsyncs2-fsyncs, wal2-wal
	if b.jobs == 0 {
		return fmt.Errorf("pgbench ended no job")
	}
	_, err = admin.Exec(ctx, "vacuum analyze")
	return err
}

// look reads the server's counters and how many jobs are done.
func (*bounded) look(ctx context.Context, admin *pgx.Conn, count string) (jobs int, fsyncs, wal int64, err error) {
	time.Sleep(1100 * time.Millisecond) // server processes report once a second
	err = admin.QueryRow(ctx, "select ("+count+"), wal_sync, (pg_current_wal_insert_lsn() - '0/0')::bigint from pg_stat_wal").Scan(&jobs, &fsyncs, &wal)
	return jobs, fsyncs, wal, err
}

// pgbench runs a script, set up as the ledger's connections are, and returns its CPU.
func pgbench(ctx context.Context, url, script string, clients int, lasts time.Duration) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "bench-limit-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "job.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-T", strconv.Itoa(int(lasts.Seconds())), "-f", file, url)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off -c plan_cache_mode=force_generic_plan")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// verbs are the ledger's statements for a job, in order, with the variables that they take.
var verbs = []struct {
	file, with string
	locks      bool // after lock.sql, in the same transaction
}{
	{"claim_read", "tenants keys tokens", false},
	{"claim_insert", "tenants keys tokens actions hashes bodies carriers workers ones hours zeros ints nulls counts lifetimes", false},
	{"look", "tenants jobs names empties", false},
	{"send", "tenants jobs ones attempts names empties routes providers models configs clients hours zeros zeros", false},
	{"settle", "tenants jobs attempts received sender times minutes classes empties empties statuses clients clients " +
		"moments tokens_in zeros tokens_out costs sources codecs bodies", true},
	{"complete", "tenants jobs ones results empties bodies used", false},
}

// batches makes the arguments that differ from job to job. A colon in a text would be a variable to pgbench.
const batches = `select array_agg(concat_ws(chr(58), 'acme', 'doc.read', gen_random_uuid(), 'v1')) as keys, array_agg(gen_random_uuid()) as tokens,
  array_agg(a) as attempts, array_agg(gen_random_uuid()) as results, array_agg('{' || a || '}') as used, array_agg('req_' || a) as clients
from (select gen_random_uuid() as a from generate_series(1, %d)) g \gset
`

// same are the elements of arguments that are the same for all jobs. They are constants of the statement: pgbench sends variables as texts, and
// to read arrays of them was a fifth of what the server did, which it has not got to do for the ledger's own binary ones.
var same = map[string]string{
	"tenants": "'acme'::text", "actions": "'doc.read'::text", "hashes": "sha256('input')", "bodies": body, "carriers": "'broker'::text",
	"workers": "'limit'::text", "ones": "1::bigint", "hours": "'1h'::interval", "zeros": "0::bigint", "ints": "1", "nulls": "null::text",
	"counts": "null::int", "lifetimes": "null::interval", "names": "'read'::text", "empties": "''::text", "routes": "'primary'::text",
	"providers": "'openai'::text", "models": "'gpt-5-mini'::text", "configs": "'p7'::text", "received": "'received'::text", "sender": "'sender'::text",
	"times": "null::timestamptz", "minutes": "'10m'::interval", "classes": "'ok'::text", "statuses": "200", "moments": "'80ms'::interval",
	"tokens_in": "400::bigint", "tokens_out": "90::bigint", "costs": "280000::bigint", "sources": "'computed'::text", "codecs": "'json'::text",
}

// body is a body of 1 KB.
const body = "convert_to(repeat('an invoice ', 93), 'UTF8')"

var (
	comment   = regexp.MustCompile(`(?m)^\s*--.*$|\s--\s.*$`)
	parameter = regexp.MustCompile(`\$(\d+)`)
)

// oursScript is a batch of whole jobs in pgbench's words, from the ledger's own files.
func oursScript(folder string, batch int) (string, error) {
	var s strings.Builder
	fmt.Fprintf(&s, batches, batch)
	for _, v := range verbs {
		sql, err := pgbenchStatement(folder, v.file, strings.Fields(v.with), batch)
		if err != nil {
			return "", err
		}
		if v.file == "claim_insert" { // the jobs' ids, as one row
			at := strings.LastIndex(sql, "select item, id from ins")
			if at < 0 {
				return "", fmt.Errorf("claim_insert.sql returns no ids any more")
			}
			s.WriteString(sql[:at] + "select array_agg(id order by item) as jobs from (" + sql[at:] + ") made \\gset\n")
			continue
		}
		if v.locks {
			lock, err := pgbenchStatement(folder, "lock", []string{"tenants", "jobs"}, batch)
			if err != nil {
				return "", err
			}
			sql = "begin;\n" + lock + ";\n" + sql + ";\ncommit"
		}
		s.WriteString(sql + ";\n")
	}
	return s.String(), nil
}

// pgbenchStatement is a statement of the ledger with its parameters filled in.
func pgbenchStatement(folder, name string, with []string, batch int) (string, error) {
	b, err := os.ReadFile(filepath.Join(folder, name+".sql"))
	if err != nil {
		return "", fmt.Errorf("read a statement of the ledger (-sql names their folder): %w", err)
	}
	var missing error
	sql := parameter.ReplaceAllStringFunc(comment.ReplaceAllString(string(b), ""), func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		if n > len(with) {
			missing = fmt.Errorf("%s.sql has a parameter %s that this program does not know", name, p)
			return p
		}
		if element := same[with[n-1]]; element != "" {
			return fmt.Sprintf("array_fill(%s, array[%d])", element, batch)
		}
		return ":" + with[n-1]
	})
	return strings.TrimSpace(sql), missing
}

// naiveScript is a job of the naive loop.
var naiveScript = `select concat_ws(chr(58), 'acme', 'doc.read', gen_random_uuid(), 'v1') as key \gset
` + strings.ReplaceAll(naiveClaim, "$1", ":key") + ";\n" + strings.NewReplacer("$1", ":key", "$2", body).Replace(naiveComplete) + ";\n"
