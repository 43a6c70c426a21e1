package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// Used is a Call of any types, for Def.Uses.
type Used interface{ info() CallInfo }

// Uses lists the calls of a handler.
func Uses(calls ...Used) []Used { return calls }

// CallInfo is a call with its types erased: what start-up checks and the
// reconciler need.
type CallInfo struct {
	Name    string
	Policy  Policy
	Timeout time.Duration // the longest of its routes
	Routes  []RouteInfo   // in the order in which they are tried
	// Reconcile looks for evidence; nil: none can be had.
	Reconcile func(ctx context.Context, o Open) (Found, error)
	// Reads says why a value that a person offers as the call's answer does not read as
	// one: it is no JSON of the call's type, or has fields that the type has not.
	Reads func(body []byte) error
	fault error
}

// RouteInfo is where a route leads, and whether what is sent there costs nothing.
type RouteInfo struct {
	Name, Provider, Model string
	Free                  bool
}

// Open is an attempt whose outcome is unknown, as a Reconcile function is given it.
type Open struct {
	Key               ledger.Key
	Input             []byte // the job's message, nil if it is not kept
	Attempt           ledger.ID
	ClientRequestID   string
	ProviderRequestID string // "" if none was seen
	ObjectID          string // the provider's name for the answer, "" if none was seen
	Route             string
	Provider          string
	Model             string
	SentAt            time.Time // on the ledger's clock

	found *Found
}

// Answered gives the provider's own object of the answer, as its JSON came: of it are taken the usage, and
// with it the cost, and the object's id. Without it both stay unknown. It is also what is kept where
// Reconcile returns Happened with an error: the answer is there and paid for, and does not read, which the
// call's route is to find out of the same object.
func (o Open) Answered(object []byte) {
	d, ok := readDocument(object)
	if !ok || o.found == nil {
		return
	}
	b := d.bill()
	o.found.Call, o.found.Usage, o.found.ObjectID, o.found.object = b.call(), b.tally.usage(), d.objectID(), object
}

// Found is what a look for evidence found, ready for Settle.
type Found struct {
	Finding  Finding
	Response *ledger.Response // the answer of Happened
	ObjectID string           // "": not told
	Usage    ledger.Usage
	Call     prices.Call // for its price; provider, model and time are still to be filled in
	Free     bool        // it costs nothing, whatever Call says: a step's

	object []byte // the provider's own, nil: not given
}

// Finding is what a look for evidence found.
type Finding int

// The findings.
const (
	CannotTell   Finding = iota // nothing; the policy decides in the end
	StillRunning                // the provider works on it, or on what may be it; look again
	Happened                    // here is the answer
	Absent                      // it never happened. Believed only after the settle window
	Failed                      // it ended without an answer, and may be billed. Believed as Absent is
)

// String is the finding's label.
func (f Finding) String() string {
	return [...]string{"cannot_tell", "still_running", "happened", "absent", "failed"}[f]
}

func (c Call[In, Out]) info() CallInfo {
	i := CallInfo{Name: c.Name, Policy: c.OnUnknown, Reads: func(body []byte) error {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		var out Out
		return d.Decode(&out)
	}}
	seen := map[string]bool{}
	for _, r := range c.Routes {
		i.Timeout = max(i.Timeout, r.Timeout)
		i.Routes = append(i.Routes, RouteInfo{r.Name, r.Provider, r.Model, r.Free || c.gratis})
		switch {
		case r.Name == "" || r.Do == nil:
			i.fault = errors.Join(i.fault, fmt.Errorf("call %s: a route needs a Name and a Do", c.Name))
		case r.Timeout <= 0:
			i.fault = errors.Join(i.fault, fmt.Errorf("call %s: route %s needs a Timeout", c.Name, r.Name))
		case r.AtOnce < 0 || r.PerMinute < 0:
			i.fault = errors.Join(i.fault, fmt.Errorf("call %s: route %s has a negative AtOnce or PerMinute", c.Name, r.Name))
		case seen[r.Name]:
			i.fault = errors.Join(i.fault, fmt.Errorf("call %s: route %s is listed twice", c.Name, r.Name))
		}
		seen[r.Name] = true
	}
	if c.Reconcile != nil {
		i.Reconcile = c.find
	}
	return i
}

// find runs Reconcile and makes of its finding what can be settled.
func (c Call[In, Out]) find(ctx context.Context, o Open) (Found, error) {
	o.found = &Found{Call: prices.Call{NoUsage: true}, Free: c.gratis}
	out, f, err := c.Reconcile(ctx, o)
	o.found.Finding = f
	switch {
	case f == Happened && err != nil && o.found.object != nil:
		r, _ := keepable(&ledger.Response{Codec: codecObject, Body: o.found.object}) // who asks for it is told of it
		o.found.Response = r
		return *o.found, nil
	case err != nil || f != Happened && f != Failed:
		return Found{Finding: f}, err
	case f == Happened:
		body, err := json.Marshal(out)
		r, _ := keepable(&ledger.Response{Codec: codecJSON, Body: body})
		o.found.Response = r
		return *o.found, err
	}
	return *o.found, nil
}

func (i CallInfo) check() error {
	if i.Name == "" || i.Timeout <= 0 && i.fault == nil {
		return fmt.Errorf("a call needs a Name and at least one route (name %q)", i.Name)
	}
	return i.fault
}

// flight is a call under way, so that goroutines of one run that ask for the same
// call share one request.
type flight struct {
	ref  ledger.CallRef
	done chan struct{} // nil: it is under way, and nobody waits for it
	v    any
	err  error
	from ledger.ID // the attempt that v is the answer of; zero: nothing was sent for it
}

// board is the flight of ref, and whether the caller has to fly it: it is the first, or the ones before it ended in errors.
func (r *Run) board(ref *ledger.CallRef) (fl *flight, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fl := r.flight(*ref); fl != nil {
		if fl.done == nil {
			fl.done = make(chan struct{})
		}
		return fl, false
	}
	fl = &flight{ref: *ref, err: errRoutePanic} // that is what the others see of a panic
	r.flights = append(r.flights, fl)
	return fl, true
}

// wait waits for who flies it.
func (fl *flight) wait(ctx context.Context) (*flight, error) {
	select {
	case <-fl.done:
		return fl, fl.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// flight is the one of a call, nil: there is none. The lock is held.
func (r *Run) flight(ref ledger.CallRef) *flight {
	for _, fl := range r.flights {
		if fl.ref == ref {
			return fl
		}
	}
	return nil
}

// land lets the next caller try again. The lock is held.
func (r *Run) land(fl *flight) {
	r.flights = slices.DeleteFunc(r.flights, func(o *flight) bool { return o == fl })
}

// closed is the channel of what has ended unobserved.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

var errRoutePanic = errors.New("PO316 the route of the call panicked")

// landed ends a flight. An answer stays for the rest of the run; after an error the next caller tries again.
func (r *Run) landed(fl *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fl.err != nil {
		r.land(fl)
	}
	if fl.done == nil {
		fl.done = closed
	} else {
		close(fl.done)
	}
}
