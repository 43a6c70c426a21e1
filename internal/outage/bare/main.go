// Command bare is a worker of one handler and no SDK, on Postgres and RabbitMQ: what it takes
// of memory is the framework's.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// doc is the message: a paid call for a document.
type doc struct {
	Tenant string `json:"tenant"`
	Doc    string `json:"doc"`
	Text   string `json:"text"`
}

func (d doc) JobKey() job.Key { return job.K(d.Tenant, "doc.read", d.Doc) }

// asleep in place of the model's URL makes calls that are no requests: they wait until SIGUSR1.
const asleep = "asleep"

// main takes the ledger's URL, the broker's, the queue, the model's URL and the number of
// handlers at once, and ends with SIGTERM.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slog.SetLogLoggerLevel(slog.LevelWarn)
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, ledgerURL, brokerURL, queue, model, workers string) error {
	n, err := strconv.Atoi(workers)
	if err != nil {
		return err
	}
	store, err := postgres.Open(ctx, ledgerURL, postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	source, err := rabbitmq.Open(ctx, rabbitmq.Config{URL: brokerURL, Queue: queue, Declare: true, Prefetch: n})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := source.Close(cctx); err != nil {
			log.Print(err)
		}
	}()
	c, err := consumer.New(consumer.Config{Name: "bare", Source: source, Store: store, Handlers: handlers(model), Workers: n})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func handlers(model string) *job.Registry {
	do := func(ctx context.Context, a *job.Attempt, d doc) (string, error) { return ask(ctx, a, model, d) }
	if model == asleep {
		woken, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
		do = func(ctx context.Context, a *job.Attempt, _ doc) (string, error) { return sleep(ctx, a, woken) }
		_ = stop // for as long as the process lives
	}
	call := job.Call[doc, string]{Name: "read", Routes: []job.Route[doc, string]{{
		Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: 5 * time.Minute,
		Do: do}}}
	var reg job.Registry
	job.Register(&reg, job.Def[doc, string]{Name: "doc.read", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, d doc) (string, error) { return call.Run(ctx, j, d) }})
	return &reg
}

// sleep is a call that something else than HTTP makes, and keeps nothing while it waits.
func sleep(ctx context.Context, a *job.Attempt, woken context.Context) (string, error) {
	if err := a.Sent(ctx); err != nil {
		return "", err
	}
	select {
	case <-woken.Done():
		return "read", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ask makes the request with nothing but net/http.
func ask(ctx context.Context, a *job.Attempt, url string, d doc) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": a.Model(), "messages": []map[string]string{{"role": "user", "content": d.Text}},
		"metadata": map[string]string{"job_key": a.Key().Text}})
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set("Content-Type", "application/json")
	res, err := a.HTTP().Do(q)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider answers %s", res.Status)
	}
	var c struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&c); err != nil {
		return "", err
	}
	return c.Choices[0].Message.Content, nil
}
