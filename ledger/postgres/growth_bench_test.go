package postgres_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// growthRounds is how many turns each size has.
const growthRounds = 6

// BenchmarkClaimGrowth measures claims of new jobs, at a steady rate, in ledgers that differ in how
// many jobs they hold, in turns, on a server that waits for its disk. PAIDONCE_BENCH_KEYS lists
// the sizes; ten million need 10 GB of disk and some minutes:
//
//	PAIDONCE_BENCH_KEYS=10000,1000000,10000000 go test ./ledger/postgres -run - -bench Growth -benchtime 1x -timeout 60m
func BenchmarkClaimGrowth(b *testing.B) {
	sizes := os.Getenv("PAIDONCE_BENCH_KEYS")
	if sizes == "" {
		sizes = "10000,1000000"
	}
	server := pgtest.StartDurable(b)
	var names []string
	loads := map[string]*load{}
	for name := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(name)
		if err != nil {
			b.Fatal(err)
		}
		url := server.URL(b)
		if err := prepare(b.Context(), url); err != nil {
			b.Fatal(err)
		}
		db := raw(b, url)
		grow(b, db, n)
		name += "-keys"
		names = append(names, name)
		loads[name] = newLoad(b, open(b, url, postgres.Options{}))
		b.Logf("%s: %s", name, scan[string](b, db, "select pg_size_pretty(pg_total_relation_size('paidonce.job'))"))
	}
	run(b, raw(b, server.URL(b)), "checkpoint")
	for b.Loop() {
		for round := range growthRounds {
			for _, name := range names {
				l := loads[name]
				if round > 0 { // in the first one, statements are prepared
					l.name(name)
				}
				stop := l.run()
				time.Sleep(turnOf)
				stop()
			}
		}
	}
	for _, name := range names {
		loads[name].report(b, name)
	}
	first, last := names[0], names[len(names)-1]
	b.ReportMetric(percentile(loads[last].took[last], 99)/percentile(loads[first].took[first], 99), "p99-ratio")
}

// grow makes n done jobs of the last month, whose bodies are past their retention.
func grow(b *testing.B, db *pgxpool.Pool, n int) {
	b.Helper()
	const part = 500_000
	for from := 0; from < n; from += part {
		run(b, db, fmt.Sprintf(`insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
			runs, events, result_id, done_at, created_at, updated_at)
			select 'acme', 'acme:invoice.extract:' || md5(i::text), 'invoice.extract', sha256(i::text::bytea), false, t::date, 'done', 1, 'broker', t, 1, 4,
			gen_random_uuid(), t, t, t
			from (select i, now() - interval '30 days' + i * interval '30 days' / %d as t from generate_series(%d, %d) i) x`, n, from, min(n, from+part)-1))
	}
	run(b, db, "vacuum analyze")
}
