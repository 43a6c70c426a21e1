package postgres_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const (
	purgedJobs  = 1_000_000
	neededEvery = 100 // one of so many is still needed
)

// BenchmarkPurge measures claims of new jobs, at a steady rate, beside a purge of a million jobs and
// without one, in turns, on a server that waits for its disk. One purge is one operation:
//
//	go test ./ledger/postgres -run - -bench Purge -benchtime 1x -count 3 -timeout 60m
//
// "results" drops the results and inputs of 1 KB each, a hundredth of whose jobs are still needed;
// "keys" deletes the jobs.
func BenchmarkPurge(b *testing.B) {
	for _, c := range []struct {
		name string
		age  int // days
		want ledger.PurgeStep
	}{
		{"results", 60, ledger.PurgeStep{Moved: purgedJobs / neededEvery}},
		{"keys", 500, ledger.PurgeStep{Moved: purgedJobs / neededEvery, Keys: purgedJobs - purgedJobs/neededEvery}},
	} {
		b.Run(c.name, func(b *testing.B) {
			url := pgtest.StartDurable(b).URL(b)
			if err := prepare(b.Context(), url); err != nil {
				b.Fatal(err)
			}
			db := raw(b, url)
			load := newLoad(b, open(b, url, postgres.Options{}))
			stop := load.run()
			time.Sleep(turnOf) // statements are prepared
			for range b.N {
				b.StopTimer()
				fill(b, db, c.age, 7, purgedJobs, neededEvery)
				run(b, db, "vacuum analyze")
				run(b, db, "checkpoint")
				b.StartTimer()
				if all := purgeInTurns(b, load); all != c.want {
					b.Errorf("purged %+v, want %+v", all, c.want)
				}
			}
			stop()
			load.report(b, "quiet")
			load.report(b, "beside")
			b.ReportMetric(percentile(load.took["beside"], 99)/percentile(load.took["quiet"], 99), "p99-ratio")
		})
	}
}

// purgeInTurns purges as a worker does, resting between steps, and every
// other turn not at all. The clock is stopped then.
func purgeInTurns(b *testing.B, load *load) (all ledger.PurgeStep) {
	quiet := func() {
		b.StopTimer()
		load.name("quiet")
		time.Sleep(turnOf)
		load.name("beside")
		b.StartTimer()
	}
	quiet()
	turn := time.Now()
	begun := turn
	for s, err := range load.ledger.Purge(b.Context(), retention) {
		if err != nil {
			b.Fatal(err)
		}
		if s.InUse {
			b.Errorf("in use: %+v", s)
		}
		all.Keys, all.Moved = all.Keys+s.Keys, all.Moved+s.Moved
		time.Sleep(s.Rest(time.Since(begun)))
		if time.Since(turn) > turnOf {
			quiet()
			turn = time.Now()
		}
		begun = time.Now()
	}
	quiet()
	load.name("")
	return all
}
