package linear

import (
	"github.com/anishathalye/porcupine"

	"github.com/paidonce/paidonce/ledger"
)

// verb is what a worker asks.
type verb int

const (
	claim verb = iota
	look
	send
	settle
	complete
	release
	leave
	sweep
)

// most is how many attempts a history may have, and epochs how many workers' epochs.
const (
	most   = 12
	epochs = 40
)

// ask is a request, with its names replaced by small numbers.
type ask struct {
	verb    verb
	epoch   int // of the worker that asks
	token   int
	fence   int64
	attempt int
	late    int64
	result  int
	yes     bool // the attempt was answered; else it was not sent
}

// reply is what the ledger said.
type reply struct {
	lost    bool // nobody knows what became of the request
	err     error
	verdict ledger.Verdict
	fence   int64
	state   ledger.State
	looked  looked
	swept   bool
}

type looked struct {
	late     int64
	attempts int
	open     int
	answered bool
}

// row is the job, as small as the rules allow.
type row struct {
	state    ledger.State // "": there is none
	fence    int64
	epoch    int
	token    int
	late     int64
	result   int
	attempts [most]attempt
	closed   [epochs]bool
}

type attempt struct {
	state ledger.AttemptState
	fence int64
}

// spec is the ledger of one job, for porcupine.
var spec = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{row{epoch: -1}} },
	Step: func(state, input, output any) []any {
		r, a, got := state.(row), input.(ask), output.(reply)
		var next []any
		for _, o := range r.outcomes(a) {
			if got.lost || o.said == got {
				next = append(next, o.row)
			}
		}
		if got.lost {
			next = append(next, r)
		}
		return next
	},
}).ToModel()

// outcome is one thing that may happen to a request.
type outcome struct {
	row  row
	said reply
}

// outcomes are what a ledger may do with a request.
func (r row) outcomes(a ask) []outcome {
	switch a.verb {
	case claim:
		return r.claimed(a)
	case look:
		return r.lookedAt(a)
	case send:
		return []outcome{r.sent(a)}
	case settle:
		return []outcome{r.settled(a)}
	case complete:
		return []outcome{r.completed(a)}
	case release:
		return []outcome{r.released(a)}
	case leave:
		r.closed[a.epoch] = true
		return []outcome{{row: r}}
	default:
		out := []outcome{{row: r}}
		if r.state == ledger.Running && r.lapsed() && r.open() > 0 {
			out = append(out, outcome{r.unknown(), reply{swept: true}})
		}
		return out
	}
}

func (r row) lapsed() bool { return r.epoch < 0 || r.closed[r.epoch] }

func (r row) open() int {
	n := 0
	for _, a := range r.attempts {
		if a.state == ledger.Sent {
			n++
		}
	}
	return n
}

func (r row) unknown() row {
	r.state, r.fence, r.epoch, r.token = ledger.Unknown, r.fence+1, -1, -1
	return r
}

// claimed is J1 to J5, and what the row says to those who may not run it.
func (r row) claimed(a ask) []outcome {
	busy := outcome{r, reply{verdict: ledger.Busy}}
	run := func() []outcome {
		if r.closed[a.epoch] {
			return []outcome{{r, reply{err: ledger.ErrClosed}}, busy}
		}
		n := r
		n.state, n.fence, n.epoch, n.token = ledger.Running, r.fence+1, a.epoch, a.token
		return []outcome{{n, reply{verdict: ledger.Run, fence: n.fence}}, busy}
	}
	switch {
	case r.state == "":
		return run()[:1]
	case r.state == ledger.Running && r.token == a.token:
		return []outcome{{r, reply{verdict: ledger.Run, fence: r.fence}}, busy}
	case r.state == ledger.Ready, r.state == ledger.Running && r.lapsed() && r.open() == 0:
		return run()
	case r.state == ledger.Running && r.lapsed():
		return []outcome{{r.unknown(), reply{verdict: ledger.HeldUnknown}}, busy}
	case r.state == ledger.Unknown:
		return []outcome{{r, reply{verdict: ledger.HeldUnknown}}, busy}
	case r.state == ledger.Done:
		return []outcome{{r, reply{verdict: ledger.Saved}}, busy}
	}
	return []outcome{busy}
}

func (r row) lookedAt(a ask) []outcome {
	if r.state == "" || r.fence != a.fence {
		return []outcome{{r, reply{err: ledger.ErrLost}}}
	}
	k := looked{late: r.late, open: r.open()}
	for _, t := range r.attempts {
		if t.state != "" {
			k.attempts++
		}
		k.answered = k.answered || t.state == ledger.Received
	}
	return []outcome{{r, reply{looked: k}}}
}

// sent is J7.
func (r row) sent(a ask) outcome {
	switch {
	case r.attempts[a.attempt].state != "":
		return outcome{r, reply{err: ledger.ErrRepeated}}
	case r.fence != a.fence || r.state != ledger.Running:
		return outcome{r, reply{err: ledger.ErrLost}}
	case r.late != a.late:
		return outcome{r, reply{err: ledger.ErrLate}}
	}
	r.attempts[a.attempt] = attempt{ledger.Sent, r.fence}
	return outcome{r, reply{}}
}

// settled is J8 and J9.
func (r row) settled(a ask) outcome {
	t := &r.attempts[a.attempt]
	end := ledger.NotSent
	if a.yes {
		end = ledger.Received
	}
	switch {
	case t.state == "":
		return outcome{r, reply{err: ledger.ErrNotFound}}
	case t.state == end:
		return outcome{r, reply{state: r.state}}
	case !a.yes && t.state != ledger.Sent && t.state != ledger.UnknownAttempt:
		return outcome{r, reply{err: ledger.ErrState}}
	}
	open := t.state == ledger.Sent
	t.state = end
	if a.yes {
		for i := range r.attempts {
			if r.attempts[i].state == ledger.Sent {
				r.attempts[i].state = ledger.UnknownAttempt
			}
		}
		if t.fence != r.fence || !open {
			r.late++
		}
	}
	if r.state == ledger.Unknown && r.open() == 0 {
		r.state, r.epoch, r.token = ledger.Ready, -1, -1
	}
	return outcome{r, reply{state: r.state}}
}

// completed is J10.
func (r row) completed(a ask) outcome {
	switch {
	case r.fence == a.fence && r.state == ledger.Done && r.result == a.result:
		return outcome{r, reply{}}
	case r.fence != a.fence || r.state != ledger.Running:
		return outcome{r, reply{err: ledger.ErrLost}}
	case r.open() > 0:
		return outcome{r, reply{err: ledger.ErrOpen}}
	}
	r.state, r.result, r.epoch, r.token = ledger.Done, a.result, -1, -1
	return outcome{r, reply{}}
}

// released is J11 and J13.
func (r row) released(a ask) outcome {
	switch {
	case r.state == "" || r.fence != a.fence || r.state != ledger.Running && r.state != ledger.Ready:
		return outcome{r, reply{err: ledger.ErrLost}}
	case r.state == ledger.Running && r.open() > 0:
		r = r.unknown()
	case r.state == ledger.Running:
		r.state, r.epoch, r.token = ledger.Ready, -1, -1
	}
	return outcome{r, reply{state: r.state}}
}
