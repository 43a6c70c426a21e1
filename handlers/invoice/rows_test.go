package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const document = `{"tenant":"acme","document":"9821","revision":3,"text":"Invoice R-17"}`

// office is a database with the ledger and the table invoices, and the job.
type office struct {
	t      *testing.T
	ledger *postgres.Ledger
	conn   *pgx.Conn
	models *modelserver.Server
	reg    job.Registry
	worker ledger.WorkerID
}

func newOffice(t *testing.T) *office {
	t.Helper()
	ctx, url := t.Context(), pgtest.URL(t)
	if err := postgres.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup // as two workers may at a deploy
	for range 2 {
		both.Go(func() {
			if err := Migrate(ctx, url); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	o := &office{t: t}
	var err error
	if o.ledger, err = postgres.Open(ctx, url, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.ledger.Close)
	if o.conn, err = pgx.Connect(ctx, url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	answer := `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	o.models, err = modelserver.Start(modelserver.Options{Generate: func(modelserver.Request) string { return answer }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.models.Close(); err != nil {
			t.Error(err)
		}
	})
	job.Register(&o.reg, New(provider.Settings{OpenAI: provider.Account{BaseURL: o.models.URL() + "/v1/", APIKey: "k"}}, InPostgres))
	if o.worker, err = o.ledger.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return o
}

// run runs the job once and returns what there is to commit.
func (o *office) run() (ledger.Lease, ledger.Result) {
	o.t.Helper()
	ctx := o.t.Context()
	h, _ := o.reg.Lookup(Name)
	in, err := h.Decode([]byte(document))
	if err != nil {
		o.t.Fatal(err)
	}
	c, err := o.ledger.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: Name, InputHash: in.Hash, Input: in.Body, Carrier: ledger.CarriedByLedger,
		Worker: o.worker, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		o.t.Fatalf("claim: %s, %v", c.Verdict, err)
	}
	r := job.NewRun(job.RunConfig{Worker: job.NewWorker(job.Worker{Ledger: o.ledger, Who: "w", Paid: context.WithoutCancel(ctx)}), Lease: &c.Lease, Number: c.Run})
	out, err := h.Run(ctx, r, &in.Content)
	if err != nil {
		o.t.Fatal(err)
	}
	return c.Lease, r.Result(out)
}

func (o *office) rows() []Invoice {
	o.t.Helper()
	rows, err := o.conn.Query(o.t.Context(), `SELECT number, currency, total_cents, supplier, coalesce(date::text, '') AS date
		FROM invoices WHERE tenant = 'acme' AND job_key = 'acme:invoice.extract:9821:v3:p7' AND document = '9821' AND revision = 3`)
	if err != nil {
		o.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[Invoice])
	if err != nil {
		o.t.Fatal(err)
	}
	return all
}

func TestRowWithResult(t *testing.T) {
	o := newOffice(t)
	lease, res := o.run()
	if n := len(o.rows()); n != 0 {
		t.Fatalf("%d rows before the result is committed", n)
	}
	if err := o.ledger.Complete(t.Context(), lease, res); err != nil {
		t.Fatal(err)
	}
	if err := o.ledger.Complete(t.Context(), lease, res); err != nil {
		t.Errorf("the same commit again, as after a lost reply: %v", err)
	}
	var want Invoice
	if err := json.Unmarshal(res.Body, &want); err != nil {
		t.Fatal(err)
	}
	if got := o.rows(); len(got) != 1 || got[0] != want || want.TotalCents != 11900 {
		t.Errorf("rows %+v, result %+v; want one and the same", got, want)
	}
}

// A run that lost its lease leaves no row.
func TestNoRowWithoutResult(t *testing.T) {
	o := newOffice(t)
	lease, res := o.run()
	lease.Fence--
	if err := o.ledger.Complete(t.Context(), lease, res); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	if got := o.rows(); len(got) != 0 {
		t.Errorf("rows %+v of a run that lost its lease", got)
	}
}

// The job that is run again on purpose has one row still, the newest.
func TestRowIsReplaced(t *testing.T) {
	o := newOffice(t)
	lease, res := o.run()
	if err := o.ledger.Complete(t.Context(), lease, res); err != nil {
		t.Fatal(err)
	}
	const key = "acme:invoice.extract:9821:v3:p7"
	if _, err := o.conn.Exec(t.Context(), saveSQL, "acme", key, "9821", 3, "R-18", "Initech", "EUR", 1, ""); err != nil {
		t.Fatal(err)
	}
	if got := o.rows(); len(got) != 1 || got[0] != (Invoice{Number: "R-18", Currency: "EUR", TotalCents: 1, Supplier: "Initech"}) {
		t.Errorf("rows %+v", got)
	}
}
