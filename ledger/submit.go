package ledger

import "context"

// Submission asks for a job. Its row is its message: ready, and carried by the ledger, so that every worker which knows the
// action finds it. A key that is there already is kept as it is.
type Submission struct {
	Key       Key
	Action    string // name of the handler
	InputHash Hash
	Input     []byte // required, since the ledger alone carries the job; at most InlineInput bytes, kept in its row
	Origin    Origin
	Who       string // the program that submits, for the history; "": producer
}

// Submitted is what a submission found.
type Submitted struct {
	New   bool  // it made the row
	State State // of the job as it is now
	// Other says that the key stands for another action or another input than was asked for: somebody was first, and
	// what they asked for is what happens.
	Other bool
}

// Submitter puts jobs on record for whoever wants them run.
type Submitter interface {
	// Submit makes the rows of all of s, or none (J1s), and says of each, in their order, what is there now. The same
	// again, after a lost reply or by somebody else, finds the rows and changes nothing. ErrRequest refuses what cannot be stored,
	// and a key that is in s twice.
	Submit(ctx context.Context, s ...Submission) ([]Submitted, error)
	// Seal is a submission as this ledger stores it, for those that go past it: in a transaction of their program's own. It
	// changes nothing where bodies are stored as they are.
	Seal(s Submission) Submission
}

// producer is who submits, where nobody says so.
const producer = "producer"

// CheckSubmissions returns an error that wraps ErrRequest when one of them cannot be stored. Every ledger calls it first.
func CheckSubmissions(all []Submission) error {
	seen := make(map[Key]bool, len(all))
	for _, s := range all {
		err := refused("submit "+s.Key.Text, name("tenant", s.Key.Tenant), name("key", s.Key.Text), name("action", s.Action),
			when(seen[s.Key], "is submitted twice in one call"),
			when(s.Input == nil || !inRow(s.Input, InlineInput), "has an input of %d bytes that does not fit into its row (%d): send it as a message, or give it a reference", len(s.Input), InlineInput))
		if err != nil {
			return err
		}
		seen[s.Key] = true
	}
	return nil
}

// Submitter is who submits, as the history names them.
func (s Submission) Submitter() string {
	if s.Who == "" {
		return producer
	}
	return Text(s.Who)
}
