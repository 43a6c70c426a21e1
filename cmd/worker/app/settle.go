package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Run records the answer to an attempt that a program outside got hold of.
func (s settleCommand) Run(c *call) error {
	return c.withLedger(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		j, err := find(ctx, store, s.Key)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(j.Attempts, func(a ledger.AttemptRow) bool {
			return s.Attempt == strconv.Itoa(a.N) || s.Attempt == a.ClientRequestID
		})
		if i < 0 || s.Attempt == "" {
			return exitError{exitFindings, fmt.Errorf("PO501 job %s has no attempt %q", s.Key, s.Attempt)}
		}
		at := j.Attempts[i]
		if at.State == ledger.Received {
			return fmt.Errorf("PO503 attempt %d of job %s is received; it has its answer", at.N, s.Key)
		}
		e, err := s.evidence(c, cfg, at)
		if err != nil {
			return err
		}
		settled, err := store.Settle(ctx, ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: at.ID}, e)
		if errors.Is(err, ledger.ErrState) {
			return fmt.Errorf("PO503 attempt %d of job %s was settled by somebody else meanwhile: %w", at.N, s.Key, err)
		}
		if err != nil {
			return fmt.Errorf("settling attempt %d of job %s: %w", at.N, s.Key, err)
		}
		s.tell(c, at, settled)
		return nil
	})
}

// evidence is what the file says of the attempt. An answer cannot be taken back, so it is checked first.
func (s settleCommand) evidence(c *call, cfg *config.Config, at ledger.AttemptRow) (ledger.Evidence, error) {
	body, err := c.read(s.Body)
	if err != nil {
		return ledger.Evidence{}, usagef("PO507 --body: %w", err)
	}
	found, err := job.AnswerOf(body)
	if err == nil {
		err = belongs(body, found, at)
	}
	if err != nil {
		return ledger.Evidence{}, usagef("PO507 --body %s is no answer to attempt %d, and an answer cannot be taken back: %w", s.Body, at.N, err)
	}
	e := ledger.Evidence{State: ledger.Received, Class: "by_person", By: ledger.ByPerson, Who: c.person(), Reason: s.Reason,
		Response: found.Response, ObjectID: found.ObjectID, Usage: found.Usage}
	table, err := cfg.PriceTable()
	if err != nil {
		return e, exitError{exitUsage, err}
	}
	found.Call.Provider, found.Call.Model, found.Call.At = at.Provider, at.Model, at.SentAt
	if cost, err := table.Cost(found.Call); err != nil {
		fmt.Fprintf(c.Stdout, "What it cost is not known: %v.\n", err)
	} else {
		e.Cost, e.CostSource = &cost, job.Computed
	}
	return e, nil
}

// belongs says why the object is that of another attempt, as far as it shows.
func belongs(body []byte, found job.Found, at ledger.AttemptRow) error {
	var object struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		object.Metadata = nil // of another form: nobody's that we know
	}
	theirs, named := object.Metadata["attempt"]
	switch id := at.Evidence.ObjectID; {
	case id != "" && id != found.ObjectID:
		return fmt.Errorf("its id is %q, and the provider called the attempt's answer %q", found.ObjectID, id)
	case named && theirs != at.ClientRequestID:
		return fmt.Errorf("its metadata name the attempt %q, and this one is %q", theirs, at.ClientRequestID)
	}
	return nil
}

// tell says what happens next.
func (s settleCommand) tell(c *call, at ledger.AttemptRow, settled ledger.Settled) {
	fmt.Fprintf(c.Stdout, "Attempt %d (call %s, %s, sent %s) is received now.\n", at.N, at.Call.Name, target(at.Provider, at.Model), clock(instant(at.SentAt)))
	switch {
	case settled.Surplus:
		fmt.Fprintf(c.Stdout, "The job is %s and did not need it; what it cost is wasted.\n", settled.Job)
	case settled.Job == ledger.Ready:
		fmt.Fprintln(c.Stdout, "The job is ready: the next worker finishes it with this answer and does not send the call again.")
	case settled.Job == ledger.Unknown:
		fmt.Fprintln(c.Stdout, "The job is still unknown: other calls are open.")
	default:
		fmt.Fprintf(c.Stdout, "The job is %s.\n", settled.Job)
	}
}
