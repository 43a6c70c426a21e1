package job

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/ledger"
)

const (
	// firstRest and lastRest bound how long a route rests after its provider said that it is overloaded:
	// the first, doubled each time that it says so again, up to the last. It rests longer where the provider asks for more.
	firstRest = time.Second
	lastRest  = time.Minute
	// quotaRest is how long a route rests whose quota or spending limit is used up.
	quotaRest = 10 * time.Minute
	// attention is how often who waits for a route looks whether its run goes on.
	attention = time.Second
)

// Traffic is what one process knows of its routes: how many attempts are under way on each, when the next
// may begin, and which rest because their providers said that they are overloaded. One is shared by all runs.
type Traffic struct {
	mu    sync.Mutex
	roads map[roadKey]*road
}

// NewTraffic knows of nothing.
func NewTraffic() *Traffic { return &Traffic{roads: make(map[roadKey]*road)} }

// roadKey names a route. Routes of two jobs are two, though they may lead to one provider.
type roadKey struct{ action, call, route string }

// limits are a route's own.
type limits struct{ atOnce, perMinute int }

// road is a route as this process uses it.
type road struct {
	limits
	under int             // attempts under way, or about to begin
	queue []chan struct{} // who waits for a place, the first first
	next  time.Time       // when the next may begin
	timer *time.Timer     // wakes the first then; nil: nobody waits for the time alone

	until   time.Time     // it rests until then
	last    time.Duration // how long it rested the last time
	strikes int           // how often in a row its provider said no
	probing bool          // after a rest one attempt tries alone
}

// ticket is an attempt on its way. Attempts that began before the latest no know less than the route does.
type ticket struct {
	strikes int
	probe   bool
}

// enter waits until an attempt may begin on the route, and counts it in. It gives up with ctx, when ended
// says why, and where the route rests: then it returns for how long, and the attempt is not counted.
func (t *Traffic) enter(ctx context.Context, k roadKey, l limits, ended func() error) (tk ticket, rest time.Duration, err error) {
	t.mu.Lock()
	r := t.roads[k]
	if r == nil {
		r = &road{}
		t.roads[k] = r
	}
	r.limits = l
	if rest := r.resting(time.Now()); rest > 0 {
		t.mu.Unlock()
		return tk, rest, nil
	}
	turn := make(chan struct{})
	r.queue = append(r.queue, turn)
	t.admit(r)
	t.mu.Unlock()
	if err := pause(ctx, turn, ended); err != nil {
		t.drop(r, turn)
		return tk, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := r.resting(time.Now()); rest > 0 { // since it began to wait
		t.end(r)
		return tk, rest, nil
	}
	tk = ticket{strikes: r.strikes, probe: r.strikes > 0}
	r.probing = r.probing || tk.probe
	return tk, 0, nil
}

// admit gives places to those who are first, as many as there are. Who leaves the queue takes nobody's turn with
// him, since turns are given out when they come, not ahead.
func (t *Traffic) admit(r *road) {
	for len(r.queue) > 0 && (r.atOnce <= 0 || r.under < r.atOnce) {
		if now := time.Now(); r.perMinute > 0 && now.Before(r.next) {
			if r.timer == nil {
				r.timer = time.AfterFunc(r.next.Sub(now), func() {
					t.mu.Lock()
					defer t.mu.Unlock()
					r.timer = nil
					t.admit(r)
				})
			}
			return
		} else if r.perMinute > 0 {
			r.next = now.Add(time.Minute / time.Duration(r.perMinute))
		}
		r.under++
		close(r.queue[0])
		r.queue = slices.Delete(r.queue, 0, 1)
	}
}

// resting is how long nobody should try the route; 0: try it. While one attempt tries alone the others come back
// after as long as the route rested.
func (r *road) resting(now time.Time) time.Duration {
	switch {
	case now.Before(r.until):
		return r.until.Sub(now)
	case r.strikes > 0 && r.probing:
		return max(attention, r.last) + jitter.Below(attention)
	}
	return 0
}

// drop takes who gave up out of the queue. Whose turn had come meanwhile passes it on.
func (t *Traffic) drop(r *road, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(r.queue, turn); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		return
	}
	t.end(r)
}

// end counts an attempt out.
func (t *Traffic) end(r *road) {
	r.under--
	t.admit(r)
}

// pause waits for a turn, and looks at times whether there is a use in it.
func pause(ctx context.Context, turn <-chan struct{}, ended func() error) error {
	select {
	case <-turn:
		return nil
	default:
	}
	look := time.NewTicker(attention)
	defer look.Stop()
	for {
		if err := ended(); err != nil {
			return err
		}
		select {
		case <-turn:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}

// leave counts an attempt out, and learns from its end; nil: nothing was sent. It returns for how long the
// route rests now, where that is news.
func (t *Traffic) leave(k roadKey, tk ticket, o *outcome) (rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, now := t.roads[k], time.Now()
	defer t.end(r)
	if tk.probe {
		r.probing = false
	}
	rest = o.rest(tk.strikes)
	switch {
	case rest > 0 && tk.strikes == r.strikes:
		r.strikes++
		r.last = min(rest, lastRest)
	case rest > 0: // of many under way at once only one adds to the rest; what the provider asks for counts
		rest = o.wait
	case tk.strikes == r.strikes && o != nil && o.evidence.State != ledger.NotSent && o.evidence.State != ledger.Sent:
		r.strikes = 0 // the provider does what it is there for
	}
	if until := now.Add(rest); rest > 0 && until.After(r.until) {
		r.until = until
		return rest
	}
	return 0
}

// rest is how long the route should rest for this end of an attempt.
func (o *outcome) rest(strikes int) time.Duration {
	switch {
	case o == nil || o.evidence.State != ledger.Rejected:
		return 0
	case o.evidence.Class == "spend_limit":
		return max(quotaRest, o.wait)
	case o.evidence.Class == "overloaded" || o.evidence.Class == "rate_limited":
		return max(min(firstRest<<min(strikes, 10), lastRest), o.wait)
	}
	return 0
}

// rested is the end of an attempt that was not begun.
func rested(rest time.Duration) *outcome {
	return &outcome{evidence: ledger.Evidence{State: ledger.NotSent}, again: soon, wait: rest, rested: true,
		err: fmt.Errorf("not tried, it rests for %s more", rest.Round(time.Second))}
}

// drive is attempt under the route's limits. A route that rests ends like one that was refused.
func (q *question[In, Out]) drive(ctx context.Context, rt *Route[In, Out], late int64) (v any, o *outcome, err error) {
	tk, o, err := q.enter(ctx, rt)
	if o != nil {
		return nil, o, err
	}
	defer func() { q.leave(rt, tk, o) }()
	return q.attempt(ctx, rt, late)
}

// enter waits for a place on the route. An outcome says that there is none. Like leave it is no part of drive: a goroutine that
// waits for a model has no room for what they need.
func (q *question[In, Out]) enter(ctx context.Context, rt *Route[In, Out]) (ticket, *outcome, error) {
	tk, rest, err := q.run.cfg.Traffic.enter(ctx, q.road(rt), limits{rt.AtOnce, rt.PerMinute}, q.run.waiting(rt.Name, rt.Timeout))
	switch {
	case err != nil:
		return tk, &outcome{evidence: ledger.Evidence{State: ledger.NotSent}, again: aborted, err: err}, err
	case rest > 0:
		o := rested(rest)
		return tk, o, o.err
	}
	return tk, nil, nil
}

// leave gives the place back, after that end of the attempt.
func (q *question[In, Out]) leave(rt *Route[In, Out], tk ticket, o *outcome) {
	k := q.road(rt)
	q.run.rests(k, q.run.cfg.Traffic.leave(k, tk, o))
}

func (q *question[In, Out]) road(rt *Route[In, Out]) roadKey {
	return roadKey{q.run.cfg.Action, q.Name, rt.Name}
}

// waiting says why there is no use in waiting for a route any more.
func (r *Run) waiting(route string, timeout time.Duration) func() error {
	return func() error {
		if err := r.cfg.Ended(); err != nil {
			return r.stick(err)
		}
		if left, draining := r.cfg.DrainLeft(); draining && left < timeout {
			return r.stick(ErrStopping)
		}
		if time.Until(r.cfg.Lease.Deadline) < timeout {
			return RetryIn(firstRest, fmt.Errorf("%w: route %s had no place before the run's deadline came near", ErrResting, route))
		}
		return nil
	}
}

// Idle reports whether the run began no attempt.
func (r *Run) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun == 0
}

func (r *Run) rests(k roadKey, rest time.Duration) {
	if rest > 0 {
		r.cfg.Log.Warn("route rests: its provider is overloaded, or its quota is used up", "call", k.call, "route", k.route, "for", rest)
	}
}
