package postgres

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
)

func TestSnake(t *testing.T) {
	for field, want := range map[string]string{"ID": "id", "N": "n", "InputHash": "input_hash", "ResultID": "result_id",
		"ProviderRequestID": "provider_request_id", "DueIn": "due_in", "PIDFile": "pid_file"} {
		if got := snake(field); got != want {
			t.Errorf("%s is of column %q, want %q", field, got, want)
		}
	}
}

// scanned has a field of each kind that rows have.
type scanned struct {
	place
	inner
	State  ledger.State
	Text   *string
	Cost   *ledger.Nano
	Hash   []byte
	Token  *[16]byte
	Left   time.Duration
	Origin *ledger.Origin
	Hashes [][]byte
	At     *time.Time
}

type inner struct{ InnerID int64 }

const scannedRows = `select i as item, i as inner_id, 'done' as state, case when i <> 2 then 'text ' || i end as text, case when i <> 2 then i end::bigint as cost,
	case when i <> 2 then sha256(i::text::bytea) end as hash, case when i <> 2 then md5(i::text)::uuid end as token, i * interval '1 s' as left,
	case when i <> 2 then jsonb_build_object('reply_to', 'q' || i) end as origin, array[i::text::bytea] as hashes, case when i <> 2 then '2026-11-30T12:00:00Z'::timestamptz end as at
	from generate_series(1, 3) i order by i`

// TestCollect: rows are what pgx makes of them, whatever the order of the columns, and share nothing with the next.
func TestCollect(t *testing.T) {
	c, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	query := func(sql string) pgx.Rows {
		rows, err := c.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	want, err := pgx.CollectRows(query(scannedRows), pgx.RowToStructByName[scanned])
	if err != nil || len(want) != 3 || want[1].Text != nil || *want[0].Text != "text 1" || *want[2].Cost != 3 || want[2].Origin == nil {
		t.Fatalf("%+v %v", want, err)
	}
	for name, sql := range map[string]string{
		"as they are": scannedRows,
		"turned":      "select at, hashes, origin, left, token, hash, cost, text, state, inner_id, item from (" + scannedRows + ") s",
	} {
		got, err := collect[scanned](query(strings.ReplaceAll(sql, "left,", `"left",`)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, want)
		}
	}
	if got, err := collect[scanned](query("select * from (" + scannedRows + ") s where false")); err != nil || len(got) != 0 {
		t.Errorf("of no rows: %+v %v", got, err)
	}
	for name, sql := range map[string]string{
		"a column too many":      "select 1 as item, 2 as other",
		"another column":         "select 1 as other",
		"a column twice":         "select 1 as item, 2 as item",
		"a null":                 "select null::int as item",
		"a text":                 "select 'x' as item",
		"an error after a row":   "select 1 / (2 - i) as item from generate_series(1, 2) i",
		"a statement that fails": "select nothing as item",
	} {
		rows, err := c.Query(t.Context(), sql)
		if err == nil {
			var got []place
			if got, err = collect[place](rows); err == nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
	for name, sql := range map[string]string{"a column twice": "select 1 as item, 2 as item", "no column for a field": "select 1 as item"} {
		if got, err := collect[struct{ Item, Other int }](query(sql)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
