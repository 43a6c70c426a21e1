package sqsfake

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Call is one call that came in, as it stands: the fields after Request are filled
// in when it is answered.
type Call struct {
	N       int    // from 1, in the order in which they came
	Action  string // "ReceiveMessage"
	Queue   string // name; "" of calls without a queue
	At      time.Time
	Body    json.RawMessage // as it was sent
	Request Request         // decoded

	Answered bool
	Status   int    // HTTP; 0 where the client got no answer
	Code     string // of an error; "" without one
	Messages int    // received
	Failed   int    // entries of a batch
	Fault    string // kind of the fault that it met, "+done" if it had its effect; ""
}

// Entries is how many messages the call is about: those of a batch, else one for an
// action about one message, else none.
func (c Call) Entries() int {
	switch c.Action {
	case "SendMessage", "DeleteMessage", "ChangeMessageVisibility":
		return 1
	}
	return len(c.Request.Entries)
}

// Each lists what the call is about: the entries of a batch, or the one of an action
// about one message.
func (c Call) Each() []Entry {
	if c.Entries() == 1 && len(c.Request.Entries) == 0 {
		return []Entry{c.Request.Entry}
	}
	return c.Request.Entries
}

// Calls returns copies of the calls so far, in order; of the actions that are named,
// if any is. "DeleteMessage*" names the single and the batch action.
func (s *Server) Calls(actions ...string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Call
	for _, c := range s.calls {
		if len(actions) == 0 || slices.ContainsFunc(actions, func(a string) bool {
			prefix, wild := strings.CutSuffix(a, "*")
			return a == c.Action || wild && strings.HasPrefix(c.Action, prefix)
		}) {
			all = append(all, *c)
		}
	}
	return all
}

// Count is how many calls Calls would return.
func (s *Server) Count(actions ...string) int { return len(s.Calls(actions...)) }

// CountEntries sums up what those calls were about: messages, not calls.
func (s *Server) CountEntries(actions ...string) (n int) {
	for _, c := range s.Calls(actions...) {
		n += c.Entries()
	}
	return n
}

// ForgetCalls empties the record. Numbers go on.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}
