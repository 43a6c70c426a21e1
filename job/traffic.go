package job

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

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

// road is a route as this process uses it.
type road struct {
	under   int             // attempts under way, or about to begin
	queue   []chan struct{} // who waits for one of them to end, the first first
	next    time.Time       // when the next may begin
	until   time.Time       // it rests until then
	strikes int             // how often in a row its provider said no
	probing bool            // after a rest one attempt tries alone
}

// limits are a route's own.
type limits struct{ atOnce, perMinute int }

func (t *Traffic) road(k roadKey) *road {
	r := t.roads[k]
	if r == nil {
		r = &road{}
		t.roads[k] = r
	}
	return r
}

// enter waits until an attempt may begin on the route, and counts it in. It gives up with ctx, when ended
// says why, and where the route rests: then it returns for how long, and the attempt is not counted.
func (t *Traffic) enter(ctx context.Context, k roadKey, l limits, ended func() error) (rest time.Duration, err error) {
	t.mu.Lock()
	r := t.road(k)
	if rest := r.resting(time.Now()); rest > 0 {
		t.mu.Unlock()
		return rest, nil
	}
	var turn chan struct{} // nil: there is room
	if l.atOnce > 0 && r.under >= l.atOnce {
		turn = make(chan struct{})
		r.queue = append(r.queue, turn)
	} else {
		r.under++
	}
	t.mu.Unlock()
	if turn != nil {
		if err := pause(ctx, turn, time.Hour, ended); err != nil {
			t.drop(r, turn)
			return 0, err
		}
	}
	if err := pause(ctx, nil, t.pace(r, l), ended); err != nil {
		t.end(r)
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := r.resting(time.Now()); rest > 0 { // since it began to wait
		r.end()
		return rest, nil
	}
	r.probing = r.strikes > 0
	return 0, nil
}

// resting is how long nobody should try the route; 0: try it.
func (r *road) resting(now time.Time) time.Duration {
	switch {
	case now.Before(r.until):
		return r.until.Sub(now)
	case r.strikes > 0 && r.probing:
		return attention
	}
	return 0
}

// pace takes the next time at which an attempt may begin, and returns how long that is from now.
func (t *Traffic) pace(r *road, l limits) time.Duration {
	if l.perMinute <= 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	at := now
	if r.next.After(now) {
		at = r.next
	}
	r.next = at.Add(time.Minute / time.Duration(l.perMinute))
	return at.Sub(now)
}

// drop takes who gave up out of the queue. Whose turn had come meanwhile passes it on.
func (t *Traffic) drop(r *road, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(r.queue, turn); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		return
	}
	r.end()
}

func (t *Traffic) end(r *road) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.end()
}

// end counts an attempt out: its place is the next one's.
func (r *road) end() {
	if len(r.queue) == 0 {
		r.under--
		return
	}
	close(r.queue[0])
	r.queue = slices.Delete(r.queue, 0, 1)
}

// pause waits for a turn (nil: none comes), or so long, and looks at times whether there is a use in it.
func pause(ctx context.Context, turn <-chan struct{}, d time.Duration, ended func() error) error {
	for until := time.Now().Add(d); d > 0; d = time.Until(until) {
		if err := ended(); err != nil {
			return err
		}
		timer := time.NewTimer(min(d, attention))
		select {
		case <-turn:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
			if turn != nil {
				until = time.Now().Add(time.Hour)
			}
		}
	}
	return nil
}

// leave counts an attempt out, and learns from its end; nil: nothing was sent. It returns for how long the
// route rests now, where that is news.
func (t *Traffic) leave(k roadKey, o *outcome) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, now := t.road(k), time.Now()
	r.end()
	r.probing = false
	rest := o.rest(r.strikes)
	switch {
	case rest > 0:
		r.strikes++
		if until := now.Add(rest); until.After(r.until) {
			r.until = until
		}
		return rest
	case o != nil && o.evidence.State != ledger.NotSent && o.evidence.State != ledger.Sent:
		r.strikes = 0 // the provider does what it is there for
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
	t, k := q.run.cfg.Traffic, roadKey{q.run.cfg.Action, q.Name, rt.Name}
	rest, err := t.enter(ctx, k, limits{rt.AtOnce, rt.PerMinute}, q.run.waiting(rt.Timeout))
	switch {
	case err != nil:
		return nil, &outcome{evidence: ledger.Evidence{State: ledger.NotSent}, again: aborted, err: err}, err
	case rest > 0:
		o = rested(rest)
		return nil, o, o.err
	}
	defer func() { q.run.rests(k, t.leave(k, o)) }()
	return q.attempt(ctx, rt, late)
}

// waiting says why there is no use in waiting for a route any more.
func (r *Run) waiting(timeout time.Duration) func() error {
	return func() error {
		if err := r.cfg.Ended(); err != nil {
			return r.stick(err)
		}
		if left, draining := r.cfg.DrainLeft(); draining && left < timeout {
			return r.stick(ErrStopping)
		}
		return nil
	}
}

func (r *Run) rests(k roadKey, rest time.Duration) {
	if rest > 0 {
		r.cfg.Log.Warn("route rests: its provider is overloaded, or its quota is used up", "call", k.call, "route", k.route, "for", rest)
	}
}
