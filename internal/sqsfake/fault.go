package sqsfake

import (
	"fmt"
	"time"
)

// Kind is what the client gets instead of the answer.
type Kind string

const (
	Answer Kind = ""       // the answer
	Refuse Kind = "refuse" // Fault.Error
	Page   Kind = "page"   // a proxy's HTML page under Fault.Status
	Close  Kind = "close"  // the connection ends before any header: EOF
	Reset  Kind = "reset"  // the same with a TCP reset
	Cut    Kind = "cut"    // 200, and the connection ends in mid-body
	Mute   Kind = "mute"   // 200 and an empty answer
	Half   Kind = "half"   // 200 and half of the body, ended as if that were all
	Hold   Kind = "hold"   // nothing until Release, then the answer
)

// Fault is what happens to a call. Its zero value is a normal answer to one call.
type Fault struct {
	Action string          // "ReceiveMessage"; "": every action
	Match  func(Call) bool // whether it is for this call; nil: it is. It may not call the server
	Times  int             // how many calls it is for. 0: one; negative: all that follow

	Kind   Kind
	Error  Error // for Refuse; one of this package's variables, or your own
	Status int   // for Page; 0: 503

	// Done says that the call has its effect all the same: with Reset, the reply is
	// lost; without, the request. Of Answer, Cut and Half it is always true.
	Done bool
	// Before and After pass, in real time, before the effect and between effect and
	// answer, whether or not the client stays.
	Before, After time.Duration

	// Entries are entries of a batch that fail; those have no effect unless Done.
	Entries []EntryFault
	// BadMD5 are indexes of received messages whose MD5OfBody is wrong.
	BadMD5 []int
	// Twice lets the first message of a receive stay visible, so that the next receive
	// hands it out again. Not with Options.Upstream.
	Twice bool
}

// EntryFault is the failure of one entry of a batch.
type EntryFault struct {
	Index int // in the request; negative: every entry
	Error Error
}

// fails returns the fault of an entry; nil without one.
func (f Fault) fails(index int) *Error {
	for _, e := range f.Entries {
		if e.Index == index || e.Index < 0 {
			return &e.Error
		}
	}
	return nil
}

// effect reports whether the call is done before the client gets what it gets.
func (f Fault) effect() bool {
	switch f.Kind {
	case Answer, Cut, Half, Hold:
		return true
	}
	return f.Done
}

func (f Fault) check(o Options) error {
	switch f.Kind {
	case Refuse:
		if f.Error.Type == "" && f.Error.Code == "" {
			return fmt.Errorf("a fault of kind %s needs an Error", f.Kind)
		}
	case Answer, Page, Mute, Close, Reset, Cut, Half, Hold:
	default:
		return fmt.Errorf("there is no fault of kind %q", f.Kind)
	}
	if f.Twice && o.Upstream != "" {
		return fmt.Errorf("a proxy cannot hand out a message twice")
	}
	return nil
}

// name is the fault's in the record of a call.
func (f Fault) name() string {
	n := string(f.Kind)
	if f.Kind != Answer && f.effect() {
		n += "+done"
	}
	return n
}

// Script adds faults. A call meets the first that is for it, and uses it up. It
// panics on a fault that does not exist.
func (s *Server) Script(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if err := f.check(s.opt); err != nil {
			panic("sqsfake: " + err.Error())
		}
		s.faults = append(s.faults, &f)
	}
}

// ClearFaults drops the faults that nobody met. Answers that are held stay held.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Release lets go of all answers that are held at this moment.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.held)
	s.held = make(chan struct{})
}

// fault takes the fault of a call. The caller holds mu.
func (s *Server) fault(c Call) Fault {
	for i, f := range s.faults {
		if f.Action != "" && f.Action != c.Action || f.Match != nil && !f.Match(c) {
			continue
		}
		if f.Times > 1 {
			f.Times--
		} else if f.Times >= 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return *f
	}
	return Fault{}
}
