package ledger

import "fmt"

// StepAsk asks for a step: a side effect with a key and a row of its own. It is part of a Result. What it asks
// for is on record with that result or not at all: as a job of that key, ready, and carried by the ledger. A key that is
// there already is kept as it is, whatever its state, action and input; either way the asking job is told of it
// from then on.
type StepAsk struct {
	Key       Key    // of the result's tenant, and not the job's own
	Action    string // name of the step's handler
	InputHash Hash
	Input     []byte // required, since the ledger alone carries a step; at most InlineInput bytes, kept in its row
	Origin    Origin // of the job; the step's, if this makes its row
}

// StepRow is a step as its job shows it.
type StepRow struct {
	Key        Key
	Action     string // as it was asked for
	Generation int    // of the job, that asked for it last
	State      State  // ""; the key is past its retention and forgotten
	// Other says that the key stands for another action or another input than was asked for: somebody was first, and
	// what they asked for is what happens.
	Other    bool
	RemoteID string // the provider's name for what was made: the object of the answer that counts; "": none
}

// AskersShown is how many of the jobs that asked for a step its row shows, the oldest.
const AskersShown = 100

// CheckSteps returns an error that wraps ErrRequest when a step of the result cannot be stored, or
// cannot be one of this job. Every ledger calls it after Check.
func (r Result) CheckSteps(job Key) error {
	if len(r.Steps) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range r.Steps {
		err := refused("ask for step "+s.Key.Text, name("key", s.Key.Text), name("action", s.Action),
			when(s.Key.Tenant != job.Tenant, "belongs to tenant %q, and its job to %q", s.Key.Tenant, job.Tenant),
			when(s.Key == job, "has the key of its job"),
			when(seen[s.Key.Text], "is asked for twice"),
			when(s.Input == nil || !inRow(s.Input, InlineInput), "has an input of %d bytes that does not fit into its row (%d)", len(s.Input), InlineInput))
		if err != nil {
			return err
		}
		seen[s.Key.Text] = true
	}
	return nil
}

// FollowReason is what the history of a step says of its beginning.
func FollowReason(job Key) string { return fmt.Sprintf(" of %s", job) }
