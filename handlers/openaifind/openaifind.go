// Package openaifind looks at OpenAI for calls whose outcome is unknown. A handler names it
// as its call's Reconcile:
//
//	Reconcile: openaifind.Reconcile(&client, openaifind.Response, readAnswer)
//
// Which look fits depends on how the route asks:
//
//   - [Response]: responses in background mode, or streamed ones in it. Their id is on record from the first answer on.
//   - [Completion]: chat completions with Store and [Metadata]. They are listed once they are complete.
//   - [Batch]: batches created with [Metadata]. They are listed from their creation on.
//
// A plain response (not in background mode) ends with its connection and cannot be asked for; its lost answers are for
// the call's policy. The client must be of the project that the route uses. Its requests cost nothing and may be
// repeated, so its retries may stay on.
package openaifind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/job"
)

// skew is how far the provider's clock may be from the ledger's.
const skew = 15 * time.Minute

// Find is a look for what became of an attempt: the provider's object where it Happened, else nil.
type Find[T any] func(ctx context.Context, client *openai.Client, o job.Open) (*T, job.Finding, error)

// Reconcile makes a call's Reconcile of a look and of how the call reads what is found: as its route does.
// When read returns an error the object is kept and the route is given it.
func Reconcile[T, Out any](client *openai.Client, find Find[T], read func(*T) (Out, error)) func(context.Context, job.Open) (Out, job.Finding, error) {
	return func(ctx context.Context, o job.Open) (Out, job.Finding, error) {
		var none Out
		found, finding, err := find(ctx, client, o)
		if err != nil || finding != job.Happened {
			return none, finding, err
		}
		out, err := read(found)
		return out, finding, err
	}
}

// Response asks for a response by its id. Without one, which is when the answer to the create request itself was lost,
// it cannot tell: responses are not listed. Nor can it when there is none under an id that there was: it is past
// its time in OpenAI's store, or it was never one of background mode. Neither proves that it did not happen.
func Response(ctx context.Context, client *openai.Client, o job.Open) (*responses.Response, job.Finding, error) {
	if o.ObjectID == "" {
		return nil, job.CannotTell, nil
	}
	r, err := client.Responses.Get(ctx, o.ObjectID, responses.ResponseGetParams{})
	switch {
	case gone(err):
		return nil, job.CannotTell, nil
	case err != nil:
		return nil, job.CannotTell, fmt.Errorf("asking for response %s: %w", o.ObjectID, err)
	case r.ID != o.ObjectID:
		return nil, job.CannotTell, fmt.Errorf("PO344 asked for response %s and was given %q", o.ObjectID, r.ID)
	}
	switch r.Status {
	case responses.ResponseStatusQueued, responses.ResponseStatusInProgress:
		return nil, job.StillRunning, nil
	case responses.ResponseStatusCompleted, responses.ResponseStatusIncomplete: // cut short by a limit, and paid for
		o.Answered([]byte(r.RawJSON()))
		return r, job.Happened, nil
	case responses.ResponseStatusFailed, responses.ResponseStatusCancelled:
		o.Answered([]byte(r.RawJSON()))
		return nil, job.Failed, nil
	}
	return nil, job.CannotTell, fmt.Errorf("PO344 response %s has the status %q, which nobody knows", o.ObjectID, r.Status)
}

// The metadata that lead from what OpenAI keeps back to us.
const (
	jobKey  = "job_key"
	attempt = "attempt"
)

// Metadata names the job and the attempt, for the request of a route. OpenAI takes 16 pairs, and 512 characters a value,
// which is as long as a key can be.
func Metadata(a *job.Attempt) shared.Metadata {
	return shared.Metadata{jobKey: a.Key().Text, attempt: a.ID()}
}

// Completion looks for a chat completion in OpenAI's store by the attempt in its [Metadata]; the route must set
// Store. Not finding it proves nothing: only complete ones are stored, listing lags, and projects without retention
// keep none. So its findings are Happened and CannotTell, never Absent.
func Completion(ctx context.Context, client *openai.Client, o job.Open) (*openai.ChatCompletion, job.Finding, error) {
	page, err := client.Chat.Completions.List(ctx, openai.ChatCompletionListParams{
		Metadata: shared.Metadata{attempt: o.ClientRequestID}})
	if err != nil {
		return nil, job.CannotTell, fmt.Errorf("listing the chat completions of attempt %s: %w", o.ClientRequestID, err)
	}
	for _, c := range page.Data { // a gateway may ignore the filter
		if c.Metadata[attempt] == o.ClientRequestID {
			o.Answered([]byte(c.RawJSON()))
			return &c, job.Happened, nil
		}
	}
	return nil, job.CannotTell, nil
}

// Batch looks for a batch by the attempt in its [Metadata], among those created since the attempt was sent. The call is
// what creates the batch, so one that exists has Happened, however far it is. One that is not in the list to its end was
// never created: Absent.
func Batch(ctx context.Context, client *openai.Client, o job.Open) (*openai.Batch, job.Finding, error) {
	if o.SentAt.IsZero() {
		return nil, job.CannotTell, nil
	}
	more, last := false, time.Time{} // when the last one was created
	page, err := client.Batches.List(ctx, openai.BatchListParams{Limit: openai.Int(100)})
	for ; err == nil && page != nil; page, err = page.GetNextPage() {
		if !page.JSON.Data.Valid() {
			return nil, job.CannotTell, fmt.Errorf("PO344 asked for a list of batches and was given none: %.100q", page.RawJSON())
		}
		more = page.HasMore
		for _, b := range page.Data {
			if b.Metadata[attempt] == o.ClientRequestID {
				o.Answered([]byte(b.RawJSON()))
				return &b, job.Happened, nil
			}
			created := time.Unix(b.CreatedAt, 0)
			if !last.IsZero() && created.After(last.Add(skew)) {
				return nil, job.CannotTell, fmt.Errorf("PO344 asked for a list of batches, newest first, and was given %s behind older ones", b.ID)
			}
			last = created
		}
		if !last.IsZero() && last.Before(o.SentAt.Add(-skew)) {
			return nil, job.Absent, nil
		}
	}
	if err == nil && more {
		err = errors.New("it breaks off")
	}
	if err != nil {
		return nil, job.CannotTell, fmt.Errorf("listing the batches since %s: %w", o.SentAt.Format(time.RFC3339), err)
	}
	return nil, job.Absent, nil
}

// gone reports whether OpenAI has nothing under an id.
func gone(err error) bool {
	e, ok := errors.AsType[*openai.Error](err)
	return ok && e.StatusCode == http.StatusNotFound
}
