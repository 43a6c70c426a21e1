package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
)

var (
	errLedger = errors.New("the ledger was not heard")
	errBroker = fmt.Errorf("the broker was not heard: %w", broker.ErrUnavailable)
)

// way is what is between a worker and its ledger and broker: each thing asked takes its time, by which nothing happens at the same
// instant as anything else, and may go wrong.
type way struct {
	w    *world
	n    *mortal.Node
	lost error // what is heard when nothing is
}

// between puts the ways between a worker and what it uses.
func (w *world) between(n *mortal.Node, cfg *consumer.Config) {
	w.mu.Lock()
	w.sources[n], _ = cfg.Source.(*memory.Source)
	w.mu.Unlock()
	if w.mutant.store != nil {
		cfg.Store = w.mutant.store(cfg.Store)
	}
	if w.mutant.source != nil {
		cfg.Source = w.mutant.source(w, cfg.Source)
	}
	cfg.Store = store{cfg.Store, way{w, n, errLedger}}
	cfg.Source = source{cfg.Source, way{w, n, errBroker}}
	cfg.Publisher = publisher{w.Queue, way{w, n, errBroker}}
}

// quiet are what workers ask again and again. It is told of when it goes wrong.
var quiet = map[string]bool{"renew": true, "flagged": true, "sweep": true, "due": true, "adopt": true, "count": true, "take": true, "extend": true, "receive": true, "job": true}

// do asks for one thing, once, as the seed wants it.
func do[T any](ctx context.Context, y way, verb, key string, call func(context.Context) (T, error)) (T, error) {
	var zero T
	w, what := y.w, y.n.Name+" "+verb+" "+key
	name := fmt.Sprintf("%s %d", what, w.nth(what))
	kind, d := w.strike(name)
	if err := pause(ctx, w.plan.chance.between(time.Millisecond, 5*time.Millisecond, "latency", name)); err != nil {
		return zero, err
	}
	if kind == lateCommit {
		w.goes(func() {
			time.Sleep(d)
			_, err := call(context.WithoutCancel(ctx))
			w.say(y.n.Name, "%s %s, late: %v", verb, key, err)
		})
		return zero, y.lost
	}
	if err := y.before(ctx, kind, d); err != nil {
		return zero, err
	}
	v, err := call(ctx)
	if !quiet[verb] || err != nil && ctx.Err() == nil {
		w.say(y.n.Name, "%s %s: %v", verb, key, err)
	}
	if lost := y.after(ctx, kind, d); lost != nil {
		return zero, lost
	}
	return v, err
}

// before is what goes wrong before it is done; nil: it is to be done.
func (y way) before(ctx context.Context, kind faultKind, d time.Duration) error {
	switch kind {
	case failBefore:
		return y.lost
	case slowBefore:
		if err := pause(ctx, d); err != nil {
			return err
		}
	case crashBefore:
		y.w.die(y.n, d)
		return y.lost
	case freezeBefore:
		y.w.freeze(y.n, d)
		if !y.n.Runs() {
			return y.lost
		}
	}
	if y.w.out(y) {
		return y.lost
	}
	return nil
}

// after is what goes wrong when it was done; nil: its answer is heard, if anybody lives to hear it.
func (y way) after(ctx context.Context, kind faultKind, d time.Duration) error {
	switch kind {
	case failAfter:
		return y.lost
	case slowAfter:
		return pause(ctx, d)
	case crashAfter:
		y.w.die(y.n, d)
	case freezeAfter:
		y.w.freeze(y.n, d)
	}
	return nil
}

// tell is do for what answers with an error alone.
func tell(ctx context.Context, y way, verb, key string, call func(context.Context) error) error {
	_, err := do(ctx, y, verb, key, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// strike says what goes wrong at a call.
func (w *world) strike(name string) (faultKind, time.Duration) {
	if !time.Now().Before(w.calm) {
		return none, 0
	}
	kind, d := w.plan.fault(name)
	if kind != none {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.misfortunes = append(w.misfortunes, name)
		w.note("FAULT", "%s: %s, %s", name, kind, d)
	}
	return kind, d
}

// out reports whether the ledger or the broker is away, for all or for the worker.
func (w *world) out(y way) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	spans, now := w.ledgerOut, time.Now()
	switch {
	case y.lost == errBroker:
		spans = w.brokerOut
	case now.Before(w.cut[y.n]):
		return true
	}
	return slices.ContainsFunc(spans, func(s span) bool { return !now.Before(s.from) && now.Before(s.to) })
}

// pause sleeps for d, and no longer than ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// store is the way to the ledger.
type store struct {
	ledger.Store
	way
}

func (s store) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	return do(ctx, s.way, "claim", r.Key.Text, func(ctx context.Context) (ledger.Claimed, error) {
		before, _ := s.w.Ledger.Job(context.Background(), r.Key)
		c, err := s.Store.Claim(ctx, r)
		if err == nil && c.Verdict == ledger.Run {
			s.w.claimed(before, r, c)
		}
		return c, err
	})
}

func (s store) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	return do(ctx, s.way, "look", l.Key.Text+"/"+callName(c), func(ctx context.Context) (ledger.Looked, error) { return s.Store.Look(ctx, l, c) })
}

func (s store) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	return tell(ctx, s.way, "send", l.Key.Text+"/"+callName(a.Call), func(ctx context.Context) error {
		err := s.Store.Send(ctx, l, a)
		if err == nil {
			s.w.gated(l, a)
		}
		return err
	})
}

func (s store) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	key := s.w.nameOf(id.ID.String()) + " " + string(e.State)
	return do(ctx, s.way, "settle", key, func(ctx context.Context) (ledger.Settled, error) { return s.Store.Settle(ctx, id, e) })
}

func (s store) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	return tell(ctx, s.way, "complete", l.Key.Text, func(ctx context.Context) error {
		err := s.Store.Complete(ctx, l, r)
		if err == nil {
			s.w.completed(l.Key, r)
		}
		return err
	})
}

func (s store) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return do(ctx, s.way, "release", l.Key.Text+" "+o.Error.Class, func(ctx context.Context) (ledger.Released, error) { return s.Store.Release(ctx, l, o) })
}

func (s store) Carry(ctx context.Context, l ledger.Lease) error {
	return tell(ctx, s.way, "carry", l.Key.Text, func(ctx context.Context) error { return s.Store.Carry(ctx, l) })
}

func (s store) Replay(ctx context.Context, l ledger.Lease, p ledger.ReplayPolicy) error {
	return tell(ctx, s.way, "replay", l.Key.Text, func(ctx context.Context) error { return s.Store.Replay(ctx, l, p) })
}

func (s store) Join(ctx context.Context, r ledger.Worker) (ledger.WorkerID, error) {
	return do(ctx, s.way, "join", r.ID, func(ctx context.Context) (ledger.WorkerID, error) {
		id, err := s.Store.Join(ctx, r)
		if err == nil {
			s.w.alive(id, r.TTL)
		}
		return id, err
	})
}

func (s store) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	return do(ctx, s.way, "renew", "", func(ctx context.Context) (ledger.Renewed, error) {
		r, err := s.Store.Renew(ctx, id, ttl)
		if err == nil {
			s.w.alive(id, ttl)
		}
		return r, err
	})
}

func (s store) Leave(ctx context.Context, id ledger.WorkerID) error {
	return tell(ctx, s.way, "leave", "", func(ctx context.Context) error {
		s.w.alive(id, 0)
		return s.Store.Leave(ctx, id)
	})
}

func (s store) Flagged(ctx context.Context, id ledger.WorkerID) ([]ledger.Key, error) {
	return do(ctx, s.way, "flagged", "", func(ctx context.Context) ([]ledger.Key, error) { return s.Store.Flagged(ctx, id) })
}

func (s store) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	return tell(ctx, s.way, "count", "", func(ctx context.Context) error { return s.Store.Count(ctx, id, batch, all) })
}

func (s store) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	return do(ctx, s.way, "sweep", "", func(ctx context.Context) (ledger.Swept, error) { return s.Store.Sweep(ctx, n) })
}

func (s store) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	return do(ctx, s.way, "due", "", func(ctx context.Context) ([]ledger.Stored, error) { return s.Store.Due(ctx, n, grace, actions...) })
}

func (s store) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	return do(ctx, s.way, "adopt", "", func(ctx context.Context) ([]ledger.Adopted, error) { return s.Store.Adopt(ctx, a) })
}

func (s store) Resolve(ctx context.Context, r ledger.Resolution) (ledger.Released, error) {
	return do(ctx, s.way, "resolve", r.Key.Text+" "+string(r.Action), func(ctx context.Context) (ledger.Released, error) { return s.Store.Resolve(ctx, r) })
}

func (s store) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	return do(ctx, s.way, "take", "", func(ctx context.Context) ([]ledger.Outgoing, error) { return s.Store.TakeMessages(ctx, n, hold) })
}

func (s store) DropMessages(ctx context.Context, ids []ledger.OutgoingID) error {
	return tell(ctx, s.way, "drop", "", func(ctx context.Context) error { return s.Store.DropMessages(ctx, ids) })
}

func (s store) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	return do(ctx, s.way, "job", k.Text, func(ctx context.Context) (ledger.Job, error) { return s.Store.Job(ctx, k) })
}

// source is the way to the broker.
type source struct {
	broker.Source
	way
}

// Receive is asked for a message that may be long in coming, so what goes wrong goes wrong with the messages.
func (s source) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if s.w.out(s.way) {
		return nil, errBroker
	}
	ds, err := s.next(ctx, n)
	if err != nil {
		return nil, err
	}
	s.w.took(ds)
	for _, d := range ds {
		s.w.say(s.n.Name, "receives %s", deliveryName(d))
	}
	what := s.n.Name + " receive " + keyOf(ds[0]).Text
	switch kind, d := s.w.strike(fmt.Sprintf("%s %d", what, s.w.nth(what))); kind {
	case failBefore, failAfter, lateCommit: // they are this worker's, which does not know
		return nil, errBroker
	case slowBefore, slowAfter:
		time.Sleep(d)
	case crashBefore, crashAfter:
		s.w.die(s.n, d)
	case freezeBefore, freezeAfter:
		s.w.freeze(s.n, d)
		s.n.Runs()
	}
	return ds, nil
}

// next waits for its turn, so that of those who wait for the same message the same one has it in every play.
func (s source) next(ctx context.Context, n int) ([]broker.Delivery, error) {
	select {
	case s.w.turn <- struct{}{}:
		defer func() { <-s.w.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Source.Receive(ctx, n)
}

func (s source) Ack(ctx context.Context, d broker.Delivery) error {
	return tell(ctx, s.way, "ack", deliveryName(d), func(ctx context.Context) error {
		s.w.acks(d)
		return s.Source.Ack(ctx, d)
	})
}

func (s source) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return tell(ctx, s.way, "nack", deliveryName(d), func(ctx context.Context) error { return s.Source.Nack(ctx, d, delay) })
}

func (s source) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	return do(ctx, s.way, "extend", deliveryName(d), func(ctx context.Context) (time.Time, error) { return s.Source.Extend(ctx, d, by) })
}

func (s source) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	return tell(ctx, s.way, "dead-letter", deliveryName(d), func(ctx context.Context) error { return s.Source.DeadLetter(ctx, d, reason) })
}

// publisher is the way of what results ask for.
type publisher struct {
	broker.Publisher
	way
}

func (p publisher) Publish(ctx context.Context, ms ...broker.Message) error {
	return tell(ctx, p.way, "publish", keyOf(broker.Delivery{Message: ms[0]}).Text, func(ctx context.Context) error {
		err := p.Publisher.Publish(ctx, ms...)
		if err == nil {
			p.w.publishes(ms)
		}
		return err
	})
}
