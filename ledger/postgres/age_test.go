package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
)

// children are the tables of children, with the units of their partitions.
var children = map[string]string{"attempt": "month", "event": "month", "response": "week", "result": "week", "input": "week", "chunk": "week"}

// ager moves jobs into the past, with their children: by whole days, so that part_on is older by
// as many. partitions makes those of the time; without it the children land in the nets.
func ager(t testing.TB, db *pgxpool.Pool, partitions bool) func(ledger.Key, time.Duration) {
	return func(k ledger.Key, d time.Duration) {
		t.Helper()
		days := int(d / (24 * time.Hour))
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			// No trigger: part_on never shrinks.
			if _, err := tx.Exec(t.Context(), "set local session_replication_role = replica"); err != nil {
				return err
			}
			var job int64
			var on, was time.Time
			err := tx.QueryRow(t.Context(), `update paidonce.job b set created_at = b.created_at - $3::interval, began_at = b.began_at - $3::interval, updated_at = b.updated_at - $3::interval,
				next_at = b.next_at - $3::interval, done_at = b.done_at - $3::interval, part_on = b.part_on - $4::int
				from (select tenant, id, part_on from paidonce.job where tenant = $1 and key = $2 for update) o
				where b.tenant = o.tenant and b.id = o.id
				returning b.id, b.part_on, o.part_on`, k.Tenant, k.Text, d, days).Scan(&job, &on, &was)
			if err != nil || days == 0 {
				return err
			}
			for table := range children {
				if partitions {
					if err := makePartition(t.Context(), tx, table, on); err != nil {
						return err
					}
				}
				if _, err := tx.Exec(t.Context(), "update paidonce."+table+" set part_on = $1 where tenant = $2 and job = $3 and part_on = $4",
					on, k.Tenant, job, was); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("age %s: %v", k, err)
		}
	}
}

// makePartition makes the partition of a day, as ensure_partitions does for those to come.
func makePartition(ctx context.Context, tx pgx.Tx, table string, day time.Time) error {
	var low, high time.Time
	err := tx.QueryRow(ctx, "select date_trunc($1, $2::timestamp), date_trunc($1, $2::timestamp) + ('1 ' || $1)::interval", children[table], day).Scan(&low, &high)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, fmt.Sprintf("create table if not exists paidonce.%s_%s partition of paidonce.%s for values from ('%s') to ('%s')",
		table, low.Format("20060102"), table, low.Format(time.DateOnly), high.Format(time.DateOnly)))
	return err
}

// where counts the rows of a job's children by the day that they belong to.
func (f *fixture) where(k ledger.Key, table string) (days []string) {
	f.Helper()
	rows, err := f.db.Query(f.Context(), `select to_char(c.part_on, 'YYYY-MM-DD') || ' ' || (c.tableoid::regclass::text like '%_default') from paidonce.`+table+` c
		join paidonce.job j on j.tenant = c.tenant and j.id = c.job where j.tenant = $1 and j.key = $2`, k.Tenant, k.Text)
	if err != nil {
		f.Fatal(err)
	}
	days, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	return days
}
