package jobtest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/paidonce/paidonce/internal/mortal"
)

// current is the run that goes on in this process; there is one at a time.
var (
	current atomic.Pointer[world]
	one     sync.Mutex
)

// enter waits for its turn, and has http.DefaultTransport lead into the run that follows. It refuses parallel tests, whose
// neighbours would be led there too.
func enter(t *testing.T) (leave func()) {
	t.Setenv("JOBTEST_RUNS", "1") // panics in a parallel test
	one.Lock()
	before := http.DefaultTransport
	http.DefaultTransport = &http.Transport{DialContext: dialFree, DialTLSContext: dialFree, DisableKeepAlives: true}
	return func() {
		current.Store(nil)
		http.DefaultTransport = before
		one.Unlock()
	}
}

// dialFree leads what is no attempt's into the run.
func dialFree(ctx context.Context, _, addr string) (net.Conn, error) {
	w := current.Load()
	if w == nil {
		return nil, net.ErrClosed
	}
	from := mortal.NodeOf(ctx)
	if from == nil {
		from = w.only()
	}
	return w.Net.DialFree(ctx, from, addr)
}

// only is the one worker that runs; nil: there are several.
func (w *world) only() *mortal.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n *mortal.Node
	for _, m := range w.nodes {
		if m.Frozen() {
			continue
		}
		if n != nil {
			return nil
		}
		n = m
	}
	return n
}

// Did tells the kit that an effect was made, by a fake of yours that stands for what the kit does not see: mail, another API's client, a device. The
// name says what was done, and to whom, such as "mail to ann@acme.example": an effect of one name is made once. Of steps that run beside
// each other it is that of the one whose name it has in it, and of several of one name that of the one whose key it has parts of. It is not for
// rows of your own, which are made in OnCommit or RunTx of ledger/memory: count them in memory.Then. Outside of the runs of this package it does nothing.
func Did(effect string) {
	w := current.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.did[effect]++
	if open := w.behind(effect); len(open) > 0 {
		w.credit(effect, open)
		return
	}
	w.problems = append(w.problems, problem{kind: "effect " + effect, weight: w.did[effect],
		what: effect + " was done by the handler itself, outside of any call or step" + times(w.did[effect], ": %d times"),
		fix:  "an effect is made again by every run of the handler: make it a job.Step, and ask for it by Step.After; it is made once, after the result. A row of yours that stands for one in a database is counted in memory.Then, not by Did"})
}

// swallowed is told of a handler that returned a result though its run may not have one.
func swallowed(sticky error) {
	w := current.Load()
	if w == nil {
		return
	}
	w.note(problem{kind: "swallowed", what: "the handler returned a result, and swallowed: " + sticky.Error(),
		fix: "return the error of Call.Run and of Step.After as it is: the result is not committed, whatever the handler says; what stands in for an answer belongs into a second route"})
}
