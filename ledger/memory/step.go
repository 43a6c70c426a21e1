package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// link is a step under a job that asked for it.
type link struct {
	key        ledger.Key
	action     string
	hash       ledger.Hash
	generation int // that asked last
}

// follow puts a step on record that r's result asks for: a row of its own, if its key has none, and
// a link, which is moved to the end when an earlier generation asked for the same.
func (l *Ledger) follow(r *row, s ledger.StepAsk, now time.Time, who string) {
	r.steps = slices.DeleteFunc(r.steps, func(o link) bool { return o.key == s.Key })
	r.steps = append(r.steps, link{s.Key, s.Action, s.InputHash, r.Generation})
	l.carryNew(ledger.Row("J10s"), ledger.Submission{Key: s.Key, Action: s.Action, InputHash: s.InputHash, Input: s.Input, Origin: s.Origin, Who: who},
		now, ledger.FollowReason(r.Key))
}

// Seal implements ledger.Submitter: bodies are stored as they are.
func (*Ledger) Seal(s ledger.Submission) ledger.Submission { return s }

// Submit implements ledger.Submitter.
func (l *Ledger) Submit(ctx context.Context, all ...ledger.Submission) ([]ledger.Submitted, error) {
	if err := ledger.CheckSubmissions(all); err != nil {
		return nil, err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found := make([]ledger.Submitted, len(all))
	for i, s := range all {
		made := l.carryNew(ledger.Row("J1s"), s, now, "")
		j := l.keys[s.Key]
		found[i] = ledger.Submitted{New: made, State: j.State, Other: j.Action != s.Action || j.InputHash != s.InputHash}
	}
	return found, nil
}

// carryNew makes the row of a job that the ledger carries, by t, unless its key has one.
func (l *Ledger) carryNew(t ledger.Transition, s ledger.Submission, now time.Time, reason string) bool {
	if t.Allows(l.facts(l.keys[s.Key], now)) != "" {
		return false
	}
	j := &row{Job: ledger.Job{Key: s.Key, ID: int64(len(l.rows)) + 1, Action: s.Action, Generation: 1, Carrier: ledger.CarriedByLedger,
		InputHash: s.InputHash, InputKept: true, Origin: s.Origin.Clean(), CreatedAt: now, BeganAt: now, NextAt: now}, input: bytes.Clone(s.Input)}
	l.keys[s.Key] = j
	l.rows = append(l.rows, j)
	j.move(t, now, s.Submitter(), reason)
	return true
}

// followed are the steps of a job.
func (l *Ledger) followed(r *row) []ledger.StepRow {
	var all []ledger.StepRow
	for _, s := range r.steps {
		row := ledger.StepRow{Key: s.key, Action: s.action, Generation: s.generation}
		if j := l.keys[s.key]; j != nil {
			row.State, row.Other, row.RemoteID = j.State, j.Action != s.action || j.InputHash != s.hash, j.remote()
		}
		all = append(all, row)
	}
	return all
}

// remote is what the answer that counts is called at the provider.
func (r *row) remote() string {
	var first *attempt
	for _, a := range r.attempts {
		if a.State == ledger.Received && !a.Surplus && a.Generation == r.Generation && (first == nil || a.captured < first.captured) {
			first = a
		}
	}
	if first == nil {
		return ""
	}
	return first.Evidence.ObjectID
}

// askers are the jobs that asked for a step.
func (l *Ledger) askers(step *row) []ledger.Key {
	var all []ledger.Key
	for _, r := range l.rows {
		if len(all) < ledger.AskersShown && slices.ContainsFunc(r.steps, func(s link) bool { return s.key == step.Key }) {
			all = append(all, r.Key)
		}
	}
	return all
}
