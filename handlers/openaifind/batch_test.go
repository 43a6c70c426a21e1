package openaifind_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// creating is the call that a batch is paid by. The file costs nothing.
func creating(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error) {
	free, c := w.client(nil), w.client(a)
	line := fmt.Sprintf(`{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":%q,"messages":[{"role":"user","content":"Read document %s"}]}}`, a.Model(), in.Doc)
	f, err := free.Files.New(ctx, openai.FileNewParams{Purpose: openai.FilePurposeBatch, File: openai.File(strings.NewReader(line), "in.jsonl", "application/jsonl")})
	if err != nil {
		return reading{}, err
	}
	b, err := c.Batches.New(ctx, openai.BatchNewParams{InputFileID: f.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
		CompletionWindow: openai.BatchNewParamsCompletionWindow24h, Metadata: openaifind.Metadata(a)})
	if err != nil {
		return reading{}, err
	}
	return reading{b.ID}, nil
}

// collecting is a handler that creates a batch, is put aside until it is over, and reads its results.
func (w *world) collecting(ctx context.Context, j *job.Run, in note) (reading, error) {
	id, err := w.call.Run(ctx, j, in)
	if err != nil {
		return reading{}, err
	}
	c := w.client(nil)
	b, err := c.Batches.Get(ctx, id.Text)
	switch {
	case err != nil:
		return reading{}, err
	case b.Status != openai.BatchStatusCompleted:
		return reading{}, job.Later(50*time.Millisecond, errors.New("the batch is "+string(b.Status)))
	}
	out, err := c.Files.Content(ctx, b.OutputFileID)
	if err != nil {
		return reading{}, err
	}
	defer out.Body.Close()
	var line struct {
		Response struct{ Body openai.ChatCompletion }
	}
	if err := json.NewDecoder(out.Body).Decode(&line); err != nil {
		return reading{}, err
	}
	return reading{line.Response.Body.Choices[0].Message.Content}, nil
}

// The answer to the request that creates a batch is lost. The list has it after a while, and the job waits for it
// without a slot. A batch that was never created is created then, after the settle window.
func TestLostBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    modelserver.Fault
		found    string
		before   []string
		attempts []ledger.AttemptState
	}{
		"created":       {modelserver.Fault{Kind: modelserver.Reset, Hold: true, Lag: 2}, "happened", []string{"too_early"}, []ledger.AttemptState{ledger.Received}},
		"never created": {modelserver.Fault{Kind: modelserver.Reset, Billed: new(false)}, "absent", []string{"too_early"}, []ledger.AttemptState{ledger.NotSent, ledger.Received}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2*time.Second, creating)
			w.handle = w.collecting
			client := w.client(nil)
			w.call.Reconcile = openaifind.Reconcile(&client, openaifind.Batch, func(b *openai.Batch) (reading, error) { return reading{b.ID}, nil })
			key := note{"acme", "1"}.JobKey().String()
			w.models.Script(key, c.fault)
			w.run()
			if before := w.found(c.found); !slices.Equal(before, c.before) {
				t.Errorf("before it was found: %v", before)
			}
			if c.fault.Hold {
				w.until("put aside", func(j ledger.Job) bool {
					return j.State == ledger.Ready && j.Error != nil && j.Error.Class == "waiting"
				})
				w.models.Release(key)
			}
			j := w.until("done", is(ledger.Done))
			var states []ledger.AttemptState
			for _, a := range j.Attempts {
				states = append(states, a.State)
			}
			bill := w.models.BillByKey()[key]
			if len(bill) != 1 || !bill[0].Delivered || !slices.Equal(states, c.attempts) || w.models.Requests() != len(c.attempts) {
				t.Fatalf("attempts %v, %d requests, bill %+v", states, w.models.Requests(), bill)
			}
			if e := j.Attempts[len(j.Attempts)-1].Evidence; e.ObjectID != bill[0].Batch || e.Cost != nil {
				t.Errorf("on record %+v, on the bill %+v", e, bill[0])
			}
			if want := `{"Text":"Summary of 3 words: Read document 1"}`; string(j.Result.Body) != want {
				t.Errorf("the result is %s, want %s", j.Result.Body, want)
			}
		})
	}
}
