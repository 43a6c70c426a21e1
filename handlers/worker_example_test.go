package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// What follows up to Example_worker is quoted by docs/worker.md.

type Haiku struct{ Tenant, Theme string }

func (h Haiku) JobKey() job.Key { return job.K(h.Tenant, "haiku", h.Theme) }

// runWorker runs jobs until ctx ends, and then what is under way to its end. main gives it signal.NotifyContext.
func runWorker(ctx context.Context, file, model string, queue *brokermemory.Queue) error {
	compose := job.Call[Haiku, string]{Name: "compose", Routes: []job.Route[Haiku, string]{{
		Name: "primary", Provider: "ours", Model: "tiny", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, h Haiku) (string, error) { return ask(ctx, a, model, h.Theme) },
	}}}
	var reg job.Registry // every job, and every step that one of them asks for (job.RegisterStep)
	job.Register(&reg, job.Def[Haiku, string]{Name: "haiku", Uses: job.Uses(compose),
		Handle: func(ctx context.Context, j *job.Run, h Haiku) (string, error) { return compose.Run(ctx, j, h) }})

	if err := sqlite.Migrate(ctx, file); err != nil { // of Postgres: worker migrate up, by its owner
		return err
	}
	store, err := sqlite.Open(ctx, file) // or postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	source := queue.Source() // or what rabbitmq.Open and sqs.Open return
	defer source.Close()
	c, err := consumer.New(consumer.Config{Source: source, Publisher: queue, Replies: queue, Store: store, Handlers: &reg})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// A program of your own: the consumer, a ledger, a queue, and your handlers.
func Example_worker() {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `"old pond"`)
	}))
	defer model.Close()
	dir, err := os.MkdirTemp("", "worker")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	queue := brokermemory.New(brokermemory.Options{})
	file := filepath.Join(dir, "ledger.db")
	var running sync.WaitGroup
	running.Go(func() {
		if err := runWorker(ctx, file, model.URL, queue); err != nil {
			fmt.Println(err)
		}
	})
	message := broker.Message{Body: []byte(`{"job":"haiku","input":{"Tenant":"acme","Theme":"frogs"}}`)}
	if err := queue.Publish(ctx, message, message); err != nil {
		fmt.Println(err)
	}
	fmt.Println(await(ctx, file, "acme:haiku:frogs"))
	cancel()
	running.Wait()
	// Output: done "old pond"
}

// await returns state and result of a job, once it is done.
func await(ctx context.Context, file, key string) (ledger.State, string) {
	for ctx.Err() == nil {
		if store, err := sqlite.Open(ctx, file); err == nil {
			j, err := store.Job(ctx, ledger.Key{Tenant: "acme", Text: key})
			store.Close()
			if err == nil && j.State == ledger.Done {
				return j.State, string(j.Result.Body)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ledger.Ready, ctx.Err().Error()
}

func ask(ctx context.Context, a *job.Attempt, model, theme string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, model, strings.NewReader(theme))
	if err != nil {
		return "", job.Fail(err)
	}
	resp, err := a.HTTP().Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var text string
	err = json.NewDecoder(resp.Body).Decode(&text)
	return text, err
}
