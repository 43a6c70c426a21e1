package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
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

// limit has pgbench take jobs through the ledger's own statements, in batches of each size, and look up duplicates of them, and
// prints what the server alone makes of them: no broker, no consumer, no Go. Beside them are the naive loop's statements.
func limit(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench limit", flag.ContinueOnError)
	sizes := f.String("b", "1,4,16,64,128", "jobs that share a statement")
	clients := f.String("c", "2,4", "connections that make statements at once (naive: 10)")
	lasts := f.Duration("t", 10*time.Second, "how long each turn lasts")
	sources := f.String("sql", "../ledger/postgres/sql", "folder of the ledger's statements")
	if err := f.Parse(args); err != nil {
		return err
	}
	turns := []bounded{{name: "naive", batch: 1, clients: 10}}
	for size := range strings.SplitSeq(*sizes, ",") {
		for n := range strings.SplitSeq(*clients, ",") {
			b := bounded{name: "paidonce"}
			var err, cerr error
			b.batch, err = strconv.Atoi(size)
			b.clients, cerr = strconv.Atoi(n)
			if err = cmp.Or(err, cerr); err != nil {
				return err
			}
			turns = append(turns, b)
		}
	}
	fmt.Printf("limit: pgbench, prepared statements, turns of %v; %d CPUs, load %s\n", *lasts, runtime.NumCPU(), load())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "statements\tof\tclients\teach\t/s\tpg us each\tpgbench us each\tfsync each\tWAL B each\t")
	for _, b := range turns {
		if err := b.measure(ctx, w, *sources, *lasts); err != nil {
			return fmt.Errorf("%s, batches of %d: %w", b.name, b.batch, err)
		}
	}
	return w.Flush()
}

// bounded is one turn of pgbench.
type bounded struct {
	name           string
	batch, clients int

	jobs             int // of the last turn
	ended            int // that were done at its end
	took             time.Duration
	postgres, client time.Duration // CPU
	fsyncs, wal      int64
}

func (b bounded) line(of string) string {
	n := float64(b.jobs)
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.3f\t%.0f\t", b.name, of, b.clients, b.batch, n/b.took.Seconds(),
		float64(b.postgres.Microseconds())/n, float64(b.client.Microseconds())/n, float64(b.fsyncs)/n, float64(b.wal)/n)
}

// measure runs jobs, and then duplicates of them, on a server of its own.
func (b bounded) measure(ctx context.Context, w io.Writer, sources string, lasts time.Duration) (err error) {
	defer refused(&err)
	r := &room{name: "limit"}
	defer r.close()
	server := pgtest.StartDurable(r)
	url := server.URL(r)
	if err := execute(ctx, url, numbers); err != nil {
		return err
	}
	jobs, again, count := naiveScript, naiveAgain, "select count(*) from naive where state = 'done'"
	if b.name == "naive" {
		err = execute(ctx, url, naiveTable)
	} else {
		count = "select count(*) from paidonce.job where state = 'done'"
		if jobs, again, err = oursScripts(sources, b.batch); err == nil {
			err = joined(ctx, url)
		}
	}
	if err != nil {
		return err
	}
	if err := b.run(ctx, server, url, jobs, count, 3*time.Second); err != nil { // statements are planned, and tables analysed, before the measured turn
		return err
	}
	if err := b.run(ctx, server, url, jobs, count, lasts); err != nil {
		return err
	}
	fmt.Fprintln(w, b.line("new keys"))
	if err := b.run(ctx, server, url, strings.ReplaceAll(again, ":last", strconv.Itoa(b.ended)), "", lasts); err != nil {
		return err
	}
	fmt.Fprintln(w, b.line("done keys"))
	return nil
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

// run lets pgbench work and measures it. count says how many jobs are done; "": each transaction is a batch of them.
func (b *bounded) run(ctx context.Context, server *pgtest.Server, url, script, count string, lasts time.Duration) error {
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
	began := time.Now()
	made, client, err := pgbench(ctx, url, script, b.clients, lasts)
	if err != nil {
		return err
	}
	b.took, b.client = time.Since(began), client
	after, err := cpu(pid)
	if err != nil {
		return err
	}
	jobs2, fsyncs2, wal2, err := b.look(ctx, admin, count)
	if err != nil {
		return err
	}
	b.jobs, b.postgres, b.fsyncs, b.wal = jobs2-jobs, after-used, fsyncs2-fsyncs, wal2-wal
	b.ended = jobs2
	if count == "" {
		b.jobs = made * b.batch
	}
	if b.jobs == 0 {
		return fmt.Errorf("pgbench ended no job")
	}
	_, err = admin.Exec(ctx, "vacuum analyze")
	return err
}

// look reads the server's counters and how many jobs are done.
func (*bounded) look(ctx context.Context, admin *pgx.Conn, count string) (jobs int, fsyncs, wal int64, err error) {
	time.Sleep(1100 * time.Millisecond) // server processes report once a second
	err = admin.QueryRow(ctx, "select ("+cmp.Or(count, "0")+"), wal_sync, (pg_current_wal_insert_lsn() - '0/0')::bigint from pg_stat_wal").Scan(&jobs, &fsyncs, &wal)
	return jobs, fsyncs, wal, err
}

var processed = regexp.MustCompile(`transactions actually processed: (\d+)`)

// pgbench runs a script, set up as the ledger's connections are, and returns how often it ended, and its CPU.
func pgbench(ctx context.Context, url, script string, clients int, lasts time.Duration) (int, time.Duration, error) {
	dir, err := os.MkdirTemp("", "bench-limit-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "job.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, "pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-T", strconv.Itoa(int(lasts.Seconds())), "-f", file, url)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off -c plan_cache_mode=force_generic_plan")
	out, err := cmd.CombinedOutput()
	made := processed.FindSubmatch(out)
	if err != nil || made == nil {
		return 0, 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	n, err := strconv.Atoi(string(made[1]))
	return n, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// verbs are the ledger's statements for a new job, in order, with the variables that they take: its claim begins with the insert, and
// its first call is not looked for.
var verbs = []struct {
	file, with string
	locks      bool // after lock.sql, in the same transaction
}{
	{"claim_insert", "tenants keys tokens actions hashes bodies carriers workers ones hours zeros ints nulls counts lifetimes", false},
	{"send", "tenants jobs ones attempts names empties routes providers models configs clients hours zeros zeros", false},
	{"settle", "tenants jobs attempts received sender times minutes classes empties empties statuses clients clients " +
		"moments tokens_in zeros tokens_out costs sources codecs bodies", true},
	{"complete", "tenants jobs ones results empties bodies used", false},
}

// Keys are of numbers, so that duplicates need not be looked for, and in no order. A colon in a text would be a variable to pgbench.
const (
	numbers = `create sequence numbers`
	newKey  = `concat_ws(chr(58), 'acme', 'doc.read', md5(nextval('numbers')::text), 'v1')`
	doneKey = `concat_ws(chr(58), 'acme', 'doc.read', md5(ceil(random() * :last)::bigint::text), 'v1')`
)

// batches makes the arguments that differ from job to job.
const batches = `select array_agg(` + newKey + `) as keys, array_agg(gen_random_uuid()) as tokens,
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

// known makes the keys of a batch of duplicates.
const known = `select array_agg(` + doneKey + `) as keys, array_agg(gen_random_uuid()) as tokens from generate_series(1, %d) \gset
`

// oursScripts are a batch of whole jobs, and one of duplicates, in pgbench's words, from the ledger's own files. A duplicate whose
// job is not done is an error: a division by zero.
func oursScripts(folder string, batch int) (jobs, again string, err error) {
	read, err := pgbenchStatement(folder, "claim_verdict", []string{"tenants", "keys", "tokens"}, batch)
	if err != nil {
		return "", "", err
	}
	again = fmt.Sprintf(known, batch) + fmt.Sprintf("select 1 / (count(*) filter (where state = 'done') = %d)::int from (%s) r;\n", batch, read)
	jobs, err = oursScript(folder, batch)
	return jobs, again, err
}

// oursScript is a batch of whole jobs.
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

// naiveScript is a job of the naive loop, and naiveAgain a duplicate of one.
var (
	naiveScript = `select ` + newKey + ` as key \gset
` + strings.ReplaceAll(naiveClaim, "$1", ":key") + ";\n" + strings.NewReplacer("$1", ":key", "$2", body).Replace(naiveComplete) + ";\n"
	naiveAgain = `select ` + doneKey + ` as key \gset
` + strings.ReplaceAll(naiveClaim, "$1", ":key") + ";\n" + strings.ReplaceAll(strings.Replace(naiveLook, "state, result", "1 / (count(result) = 1)::int", 1), "$1", ":key") + ";\n"
)
