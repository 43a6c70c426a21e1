package invoice

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// TestRowInSQLite: the embedded ledger keeps the invoice's row with the result, and none
// without it.
func TestRowInSQLite(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "ledger.db")
	if err := sqlite.Migrate(ctx, path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := MigrateSQLite(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	answer := `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":""}`
	models, err := modelserver.Start(modelserver.Options{Generate: func(modelserver.Request) string { return answer }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := models.Close(); err != nil {
			t.Error(err)
		}
	})
	var reg job.Registry
	job.Register(&reg, New(provider.Settings{OpenAI: provider.Account{BaseURL: models.URL() + "/v1/", APIKey: "k"}}, InSQLite))
	h, _ := reg.Lookup(Name)
	in, err := h.Decode([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	worker, err := store.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: Name, InputHash: in.Hash, Input: in.Body, Carrier: ledger.CarriedByLedger,
		Worker: worker, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		t.Fatalf("claim: %s, %v", c.Verdict, err)
	}
	r := job.NewRun(job.RunConfig{Worker: job.NewWorker(job.Worker{Ledger: store, Who: "w", Paid: context.WithoutCancel(ctx)}), Lease: &c.Lease, Number: c.Run})
	out, err := h.Run(ctx, r, &in.Content)
	if err != nil {
		t.Fatal(err)
	}
	res := r.Result(out)
	lost := c.Lease
	lost.Fence--
	if err := store.Complete(ctx, lost, res); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("a run that lost its lease: %v", err)
	}
	rows := func() (got Invoice, n int) {
		look := ledger.Result{ID: ledger.NewID()}
		sqlite.OnCommit(hooks{&look}, func(ctx context.Context, tx sqlite.Tx) error {
			if err := tx.QueryRowContext(ctx, "select count(*) from invoices").Scan(&n); err != nil || n == 0 {
				return errors.Join(err, errors.New("only to look"))
			}
			err := tx.QueryRowContext(ctx, "select number, currency, total_cents, supplier, coalesce(date, '') from invoices where tenant = 'acme' and revision = 3").
				Scan(&got.Number, &got.Currency, &got.TotalCents, &got.Supplier, &got.Date)
			return errors.Join(err, errors.New("only to look"))
		})
		// Looking fails on purpose, on a job of its own, so that it changes nothing.
		q := ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:look:" + ledger.NewID().String()}, Action: "look", Worker: worker, Token: ledger.NewID(), MaxRun: time.Hour}
		c, err := store.Claim(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Complete(ctx, c.Lease, look); !errors.Is(err, ledger.ErrHook) {
			t.Errorf("looking: %v", err)
		}
		return got, n
	}
	if _, n := rows(); n != 0 {
		t.Errorf("%d rows of a run that lost its lease", n)
	}
	for range 2 { // the second as after a lost reply
		if err := store.Complete(ctx, c.Lease, res); err != nil {
			t.Fatal(err)
		}
	}
	want := Invoice{Number: "R-17", Currency: "EUR", TotalCents: 11900, Supplier: "Initech"}
	if got, n := rows(); n != 1 || got != want {
		t.Errorf("%d rows, %+v; want one, %+v", n, got, want)
	}
}

type hooks struct{ *ledger.Result }

func (h hooks) OnCommit(x ledger.Hook) { h.Hooks = append(h.Hooks, x) }
