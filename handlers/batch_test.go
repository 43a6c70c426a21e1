package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/paidonce/paidonce/handlers/anthropicfind"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// pile is a message that asks for two texts to be read in one batch.
type pile struct{ Tenant, Pile string }

func (p pile) JobKey() job.Key { return job.K(p.Tenant, "pile.read", p.Pile) }

// piles registers a job on Anthropic's message batches, as a user writes it.
func (b *bench) piles() {
	client := func(a *job.Attempt) *anthropic.Client {
		opts := []option.RequestOption{option.WithBaseURL(b.models.URL()), option.WithAPIKey("k")}
		if a != nil {
			opts = append(opts, option.WithHTTPClient(a.HTTP()))
		}
		c := anthropic.NewClient(opts...)
		return &c
	}
	create := job.Call[pile, string]{Name: "create",
		Routes: []job.Route[pile, string]{{Name: "only", Provider: "anthropic", Model: "claude-haiku-4-5", Timeout: 5 * time.Second,
			Do: func(ctx context.Context, a *job.Attempt, _ pile) (string, error) {
				var p anthropic.MessageBatchNewParams
				for _, name := range []string{"one", "two"} {
					p.Requests = append(p.Requests, anthropic.MessageBatchNewParamsRequest{CustomID: anthropicfind.CustomID(a, name),
						Params: anthropic.MessageBatchNewParamsRequestParams{Model: anthropic.Model(a.Model()), MaxTokens: 9,
							Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Read " + name))}}})
				}
				batch, err := client(a).Messages.Batches.New(ctx, p)
				if err != nil {
					return "", err
				}
				return batch.ID, nil
			}}},
		Reconcile: anthropicfind.Batch(client(nil), func(batch *anthropic.MessageBatch) (string, error) { return batch.ID, nil }),
	}
	job.Register(&b.reg, job.Def[pile, map[string]string]{Name: "pile.read", Uses: job.Uses(create),
		Handle: func(ctx context.Context, j *job.Run, in pile) (map[string]string, error) {
			id, err := create.Run(ctx, j, in)
			if err != nil {
				return nil, err
			}
			c := client(nil)
			batch, err := c.Messages.Batches.Get(ctx, id, anthropic.MessageBatchGetParams{})
			switch {
			case err != nil:
				return nil, err
			case batch.ProcessingStatus != anthropic.MessageBatchProcessingStatusEnded:
				return nil, job.Later(time.Minute, errors.New("the batch is not over"))
			}
			read := map[string]string{}
			results := c.Messages.Batches.ResultsStreaming(ctx, id, anthropic.MessageBatchResultsParams{})
			defer results.Close()
			for results.Next() {
				r := results.Current()
				read[anthropicfind.Name(r.CustomID)] = r.Result.Message.Content[0].Text
			}
			return read, results.Err()
		}})
}

// The answer to the request that creates a batch of messages is lost. While it runs it may be anybody's; when it has
// ended it is found by what its requests are named, and the job has its results. It is paid once.
func TestLostMessageBatch(t *testing.T) {
	b := newBench(t, "anthropic", nil)
	b.piles()
	body := `{"Tenant":"acme","Pile":"1"}`
	b.models.Script("the job", modelserver.Fault{Kind: modelserver.Close, Hold: true})
	if _, err := b.run("pile.read", body); !errors.Is(err, job.ErrHeld) {
		t.Fatalf("error %v, want ErrHeld", err)
	}
	j := b.job("pile.read", body)
	if j.State != ledger.Unknown {
		t.Fatalf("job %+v", j)
	}
	h, _ := b.reg.Lookup("pile.read")
	call, _ := h.Call("create")
	at := j.Attempts[0]
	open := job.Open{Key: j.Key, Attempt: at.ID, ClientRequestID: at.ClientRequestID, Route: at.Route, Provider: at.Provider, SentAt: at.SentAt}
	if found, err := call.Reconcile(t.Context(), open); err != nil || found.Finding != job.StillRunning {
		t.Fatalf("while it runs: %+v, %v", found, err)
	}
	b.models.Release("the job")
	found, err := call.Reconcile(t.Context(), open)
	for end := time.Now().Add(20 * time.Second); err == nil && found.Finding == job.StillRunning && time.Now().Before(end); {
		found, err = call.Reconcile(t.Context(), open)
	}
	line := b.models.Bill()[0]
	if err != nil || found.Finding != job.Happened || found.ObjectID != line.Batch || !found.Call.NoUsage {
		t.Fatalf("when it is over: %+v, %v", found, err)
	}
	other := open
	other.ClientRequestID = ledger.NewID().String()
	if found, err := call.Reconcile(t.Context(), other); err != nil || found.Finding != job.Absent {
		t.Errorf("of another attempt: %+v, %v", found, err)
	}
	id := ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: at.ID}
	if _, err := b.ledger.Settle(t.Context(), id, ledger.Evidence{State: ledger.Received, By: ledger.ByReconciler, Response: found.Response}); err != nil {
		t.Fatal(err)
	}
	out, err := b.run("pile.read", body)
	var read map[string]string
	if err != nil || json.Unmarshal([]byte(out), &read) != nil || len(read) != 2 || read["two"] != "Summary of 2 words: Read two" {
		t.Errorf("result %s, %v", out, err)
	}
	if j := b.job("pile.read", body); j.State != ledger.Done || len(j.Attempts) != 1 || len(b.models.Bill()) != 2 || b.models.Requests() != 1 {
		t.Errorf("job %s with %d attempts, %d requests, bill %+v", j.State, len(j.Attempts), b.models.Requests(), b.models.Bill())
	}
}
