package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/submit"
)

// wait waits for the jobs that were sent, one after the other, and prints what became of each in the form of an answer to
// a message. A job that was there before is waited for as well. It fails when one has no result.
func (s *submission) wait(cfg *config.Config, limit time.Duration) error {
	store, done, err := s.openLedger(cfg)
	if err != nil {
		return err
	}
	defer done()
	ctx := s.ctx
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("PO592 --timeout %s is over; the jobs go on", limit))
		defer cancel()
	}
	var held, ended int
	out := json.NewEncoder(s.Stdout)
	out.SetEscapeHTML(false)
	seen := map[wanted]bool{}
	for _, a := range s.stored {
		if seen[a] {
			continue
		}
		seen[a] = true
		j, err := submit.Wait(ctx, store, a.key)
		if err != nil {
			return err
		}
		r := s.outcome(j, a.hash)
		switch {
		case r.State == string(ledger.Unknown):
			held++
		case r.State != string(ledger.Done):
			ended++
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	switch {
	case ended > 0:
		return fmt.Errorf("PO593 %d of %d jobs ended without a result, %d are held", ended, len(seen), held)
	case held > 0:
		return exitError{exitFindings, fmt.Errorf("PO594 %d of %d jobs are held: the outcome of a paid call is unknown; worker unknown list shows what to look for", held, len(seen))}
	}
	return nil
}

// outcome is what people may see of the end of a job that was asked for with that input. What became of another one under the same key
// is no answer: the message is refused by whoever receives it.
func (s *submission) outcome(j ledger.Job, want ledger.Hash) consumer.Reply {
	r := consumer.Reply{Key: j.Key.Text, Job: j.Action, State: string(j.State)}
	switch {
	case j.Action != s.handler.Name() || j.InputHash != want:
		r.Job, r.State, r.Error = s.handler.Name(), "dead_lettered", &consumer.ReplyError{Class: "dead_lettered", Text: submit.ErrOther.Error()}
	case j.Result != nil:
		r.Result = s.handler.Shown(job.PartResult, j.Result.Body)
	case j.State == ledger.Done:
		r.Error = &consumer.ReplyError{Class: "purged", Text: "the result is past its retention"}
	case j.Error != nil:
		r.Error = &consumer.ReplyError{Class: j.Error.Class, Text: s.handler.ShownText(j.Error.Text)}
	}
	return r
}
