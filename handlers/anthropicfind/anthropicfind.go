// Package anthropicfind looks at Anthropic for calls whose outcome is unknown, as far as it can be asked: for message
// batches. Of a single message it keeps nothing: no list, no look-up by id, and no id of the client's. A lost answer to
// one is for the call's policy.
//
// A handler names it as its call's Reconcile:
//
//	Reconcile: anthropicfind.Batch(&client, func(b *anthropic.MessageBatch) (Out, error) { … })
package anthropicfind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/paidonce/paidonce/job"
)

const (
	// skew is how far the provider's clock may be from the ledger's.
	skew = 15 * time.Minute
	// latest is how long after an attempt was sent its batch may have been created.
	latest = time.Hour
)

// CustomID is the name of a request in the batch of an attempt, by which the batch is found: the attempt's id, and name,
// which must be unique in the batch and of at most 27 letters, digits, hyphens and underscores.
func CustomID(a *job.Attempt, name string) string { return prefix(a.ID()) + name }

// Name undoes CustomID, for the results.
func Name(customID string) string {
	if len(customID) < idLength {
		return customID
	}
	return customID[idLength:]
}

// idLength is that of an attempt's id and a hyphen.
const idLength = 37

func prefix(attempt string) string { return attempt + "-" }

// Batch makes the Reconcile of a call that creates a batch whose requests have a [CustomID], and of how the call reads
// the batch: as its route does. The client must be of the workspace that the route uses.
//
// A batch shows whose it is when it has ended. So one that was created at about the time of the attempt and still runs
// is StillRunning, since it may be the one. When all of that time have ended, within a day, and none is it, it was never
// created: Absent. It cannot tell while one of them does not show its results any more.
func Batch[Out any](client *anthropic.Client, read func(*anthropic.MessageBatch) (Out, error)) func(context.Context, job.Open) (Out, job.Finding, error) {
	return func(ctx context.Context, o job.Open) (Out, job.Finding, error) {
		var none Out
		b, finding, err := find(ctx, client, o)
		if err != nil || finding != job.Happened {
			return none, finding, err
		}
		o.Answered([]byte(b.RawJSON()))
		out, err := read(b)
		return out, finding, err
	}
}

func find(ctx context.Context, client *anthropic.Client, o job.Open) (*anthropic.MessageBatch, job.Finding, error) {
	if o.SentAt.IsZero() {
		return nil, job.CannotTell, nil
	}
	finding, more, last := job.Absent, false, time.Time{} // when the last one was created
	page, err := client.Messages.Batches.List(ctx, anthropic.MessageBatchListParams{Limit: anthropic.Int(1000)})
	for ; err == nil && page != nil; page, err = page.GetNextPage() {
		if !page.JSON.Data.Valid() {
			return nil, job.CannotTell, fmt.Errorf("PO345 asked for a list of batches and was given none: %.100q", page.RawJSON())
		}
		more = page.HasMore
		for _, b := range page.Data {
			if !last.IsZero() && b.CreatedAt.After(last.Add(skew)) {
				return nil, job.CannotTell, fmt.Errorf("PO345 asked for a list of batches, newest first, and was given %s behind older ones", b.ID)
			}
			last = b.CreatedAt
			one, err := look(ctx, client, &b, o)
			switch {
			case err != nil:
				return nil, job.CannotTell, fmt.Errorf("reading what batch %s holds: %w", b.ID, err)
			case one == job.Happened:
				return &b, one, nil
			case one == job.StillRunning || finding == job.Absent:
				finding = one
			}
		}
		if !last.IsZero() && last.Before(o.SentAt.Add(-skew)) {
			return nil, finding, nil
		}
	}
	if err == nil && more {
		err = errors.New("it breaks off")
	}
	if err != nil {
		return nil, job.CannotTell, fmt.Errorf("listing the batches since %s: %w", o.SentAt.Format(time.RFC3339), err)
	}
	return nil, finding, nil
}

// look says whether a batch is that of the attempt.
func look(ctx context.Context, client *anthropic.Client, b *anthropic.MessageBatch, o job.Open) (job.Finding, error) {
	switch {
	case b.CreatedAt.After(o.SentAt.Add(latest)) || b.CreatedAt.Before(o.SentAt.Add(-skew)):
		return job.Absent, nil
	case b.ProcessingStatus != anthropic.MessageBatchProcessingStatusEnded:
		return job.StillRunning, nil
	case !b.ArchivedAt.IsZero():
		return job.CannotTell, nil
	}
	results := client.Messages.Batches.ResultsStreaming(ctx, b.ID, anthropic.MessageBatchResultsParams{})
	defer results.Close()
	if !results.Next() { // no batch is without any
		return job.CannotTell, results.Err()
	}
	if strings.HasPrefix(results.Current().CustomID, prefix(o.ClientRequestID)) { // all of a batch have the same
		return job.Happened, nil
	}
	return job.Absent, nil
}
