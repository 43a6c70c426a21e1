package ledger

// StepAsk asks for a step: a side effect with a key and a row of its own. It is part of a Result, and what
// it asks for is on record with that result or not at all.
type StepAsk struct {
	Key       Key    // of the result's tenant, and not the job's own
	Action    string // name of the step's handler
	InputHash Hash
	Input     []byte // at most InlineInput bytes; required, since the ledger alone carries a step
	Origin    Origin // of the job
}
