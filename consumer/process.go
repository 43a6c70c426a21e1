package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// deliver deals with one delivery from beginning to end: decode, look and claim, run,
// complete, acknowledge. Whatever happens, the delivery is settled or given back.
//
// A goroutine keeps the stack that it once needed, and all of this needs a deep one. A handler, which waits for models with
// thousands beside it, needs little: so it has a goroutine of its own (execute), and the one that claimed the job ends.
func (c *Consumer) deliver(ctx, paid context.Context, w *work) {
	c.inHand(ctx, paid, w, func() bool { return c.read(ctx, w) && c.process(ctx, paid, w) })
}

// inHand calls f, which deals with w until it is settled, or passes it on to another goroutine and says so.
func (c *Consumer) inHand(ctx, paid context.Context, w *work, f func() (passed bool)) {
	passed := false
	defer func() {
		if !passed {
			c.end(w)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			c.panicked(ctx, paid, w, v)
		}
	}()
	passed = f()
}

// read finds out what the delivery asks for. What cannot be read it settles, and reports false.
func (c *Consumer) read(ctx context.Context, w *work) bool {
	d := w.held.delivery()
	reply := addressOf(d.Attributes)
	m, err := c.cfg.decode(ctx, d.Message)
	if reply.to == "" {
		reply = addressOf(m.attributes) // of what was wrapped
	}
	w.reply, w.origin = reply.ifAsked(), origin(d.Facts, m.attributes, reply)
	w.handler, w.key, w.in = m.handler, m.in.Key.Ledger(), m.in.Content
	c.named(w, cmp.Or(m.job, w.job), 0, 0)
	if u, ok := unresolved(err); ok {
		w.log.WarnContext(ctx, "body not read; given back", "error", err)
		c.nack(ctx, w, max(u.in, c.backoff(d.Receives)), ctx.Err() != nil)
		return false
	}
	if err != nil {
		c.deadLetter(ctx, w, err.Error())
		return false
	}
	return true
}

// revive runs a job that the ledger carries, from its stored input.
func (c *Consumer) revive(ctx, paid context.Context, s ledger.Stored, h *job.Handler) {
	w := c.begin(nil)
	w.handler, w.key, w.reply, w.origin = h, s.Key, address{s.Origin.ReplyTo, s.Origin.Correlation}.ifAsked(), ifKnown(s.Origin)
	c.inHand(ctx, paid, w, func() bool {
		c.named(w, s.Action, 0, 0)
		if w.undecodable = s.Fault; s.Fault == nil {
			var in job.Input
			in, w.undecodable = h.Decode(s.Input)
			w.in = in.Content
		}
		w.in.Hash, w.in.Body = s.InputHash, s.Input // as the row has them
		return c.process(ctx, paid, w)
	})
}

// panicked ends the work that died of a panic outside the handler: in a JobKey, in the
// user's work of the commit, or in an adapter. The process lives on, and so
// would the lease, so the job is given back as after a panic of the handler.
func (c *Consumer) panicked(ctx, paid context.Context, w *work, v any) {
	defer func() {
		if v := recover(); v != nil { // the same adapter again
			w.log.ErrorContext(ctx, "giving back panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	err := job.Panicked(v)
	w.log.ErrorContext(ctx, "processing panicked", "panic", c.shown(w.handler, fmt.Sprint(err.Value)), "stack", string(err.Stack))
	if lease, _ := c.owned(w); lease == nil {
		c.nack(ctx, w, c.cfg.Retry.First, true)
		return
	}
	if _, again := c.release(ctx, paid, w, c.outcome(ctx, 1, true, err), err); again != nil {
		c.nack(ctx, w, again.in, again.unused)
	}
}

// process claims the job and does what the verdict says. It reports whether the job's run has w in hand now; else the
// delivery is settled.
func (c *Consumer) process(ctx, paid context.Context, w *work) (passed bool) {
	again, passed := c.turn(ctx, paid, w)
	return passed || c.anew(ctx, paid, w, again)
}

// anew is process after a turn that wants another one: there is one after
// each wait that is short enough to be spent here.
func (c *Consumer) anew(ctx, paid context.Context, w *work, again *later) (passed bool) {
	for again != nil && c.wait(ctx, w, *again) {
		c.named(w, w.job, 0, 0)
		if again, passed = c.turn(ctx, paid, w); passed {
			return true
		}
	}
	return false
}

// turn claims the job and does what the verdict says. nil: the delivery is settled, or passed on to a run.
func (c *Consumer) turn(ctx, paid context.Context, w *work) (again *later, passed bool) {
	claimed, err := c.claim(ctx, w)
	if err != nil {
		c.unclaimed(ctx, w, err)
		return nil, false
	}
	if claimed.Verdict == ledger.Run {
		lease := claimed.Lease            // alone, and not what it came with
		c.owns(w, &lease, func(error) {}) // whatever happens from here, the run ends on record
	}
	c.trace.claimed(w.job, claimed.Verdict)
	if claimed.Verdict == ledger.Run {
		w.rerun = claimed.Generation > 1
		c.execute(ctx, w, claimed.Run)
		return nil, true
	}
	return c.answer(ctx, w, claimed), false
}

// unclaimed ends a delivery that the ledger did not judge.
func (c *Consumer) unclaimed(ctx context.Context, w *work, err error) {
	if errors.Is(err, ledger.ErrRequest) {
		c.deadLetter(ctx, w, err.Error())
		return
	}
	w.log.WarnContext(ctx, "not claimed; given back", "error", err)
	delay := c.cfg.Retry.First
	if ctx.Err() != nil {
		delay = 0 // this worker drains; another one should have it at once
	}
	c.nack(ctx, w, delay, true)
}

// answer does what a verdict without a run asks for. nil: the delivery is settled.
func (c *Consumer) answer(ctx context.Context, w *work, claimed *ledger.Claimed) *later {
	carried := claimed.Carrier == ledger.CarriedByLedger
	switch claimed.Verdict {
	case ledger.Saved, ledger.Purged:
		c.avoid(ctx, w, claimed)
	case ledger.HasFailed, ledger.IsCancelled:
		w.log.InfoContext(ctx, "job ended without a result before", "verdict", claimed.Verdict.String())
		c.ackTold(ctx, w, nil)
	case ledger.HeldUnknown:
		if !carried {
			return &later{in: c.lookIn(claimed), unused: true}
		}
		c.ackTold(ctx, w, nil)
	case ledger.Busy, ledger.NotDue:
		if !carried && !(claimed.Verdict == ledger.Busy && c.absorbs(w)) || c.awaited(w) { // who waits for an answer gets it when there is one
			return &later{in: c.lookIn(claimed), unused: true}
		}
		c.ack(ctx, w)
	case ledger.Mismatch:
		if w.held == nil { // a step that others asked for first, with another input
			w.log.InfoContext(ctx, "the key stands for something else, which is kept; nothing was run", "stored_job", claimed.Stored.Action)
			return nil
		}
		c.deadLetter(ctx, w, mismatch(w, claimed))
	default:
		panic("consumer: verdict " + claimed.Verdict.String())
	}
	return nil
}

// absorbs reports whether a duplicate that finds its job busy is acknowledged at once. One that was handed out
// before may be the very message that the job has: its visibility lapsed, its worker died, or gave it back when the ledger
// did not answer. Without it nobody would bring the job back before the grace time is over.
func (c *Consumer) absorbs(w *work) bool {
	d := w.held.delivery()
	return c.cfg.AckBusy && d.Receives == 1 && !d.Again && len(w.in.Body) <= ledger.InlineInput-ledger.WrapRoom
}

var errNotJoined = errors.New("PO342 this worker's own lease is over")

// claim asks for the job until the ledger answers; a delivery that the drain
// finds unclaimed is given back.
func (c *Consumer) claim(ctx context.Context, w *work) (*ledger.Claimed, error) {
	r := c.request(w)
	var asked bool // with this token, by this delivery or an earlier one
	r.Token, asked = c.token(r.Key)
	var claimed ledger.Claimed
	// After two minutes it is this message's fault, or nobody's soon.
	err := repeat(nil, pauses{first: 100 * time.Millisecond, ceil: 5 * time.Second}, 2*time.Minute, func() (err error) {
		if ctx.Err() != nil {
			return permanent{context.Cause(ctx)}
		}
		if !c.joined() {
			return errNotJoined
		}
		select {
		case c.asking <- struct{}{}:
			defer func() { <-c.asking }()
		case <-ctx.Done():
			return permanent{context.Cause(ctx)}
		}
		r.Worker, asked = *c.worker.Load(), true
		claimed, err = c.store.Claim(c.common(ctx), r)
		switch {
		case errors.Is(err, ledger.ErrClosed):
			c.renewSoon()
		case errors.Is(err, ledger.ErrRequest):
			return permanent{err}
		}
		return err
	})
	if err != nil && asked && !errors.Is(err, ledger.ErrRequest) {
		c.mu.Lock()
		c.orphans[r.Key] = append(c.orphans[r.Key], r.Token)
		if r.Carrier == ledger.CarriedByLedger { // no delivery will ask again
			c.unheard = append(c.unheard, ledger.Stored{Key: r.Key, Action: r.Action, InputHash: r.InputHash, Input: r.Input, Origin: r.Origin})
		}
		c.mu.Unlock()
	}
	return &claimed, err
}

// request is what a claim of w asks for, but for its token and the worker. It is not kept: while a model is waited for, nobody needs it.
func (c *Consumer) request(w *work) ledger.Request {
	h, limits := w.handler, w.handler.Limits()
	r := ledger.Request{Key: w.key, Action: h.Name(), InputHash: w.in.Hash, Input: w.in.Body, Carrier: ledger.CarriedByLedger, Origin: w.knownOrigin(),
		MaxRun: cmp.Or(h.MaxRun(), c.cfg.MaxRun), MaxRuns: cmp.Or(h.MaxRuns(), c.cfg.MaxRuns),
		Budget: limits.USD, MaxCalls: limits.Calls, Lifetime: limits.Lifetime,
		VerdictOnly: !c.wanted(w)} // a duplicate that nobody waits for
	if w.held != nil {
		r.Carrier, r.Receives = ledger.CarriedByBroker, w.held.delivery().Receives
	}
	return r
}

// token names a claim. One that got no answer may have been granted all the same, and
// nobody else can end it while this worker lives: the next claim of the
// key takes its token up and is told Run again. Of several, each is taken up once.
func (c *Consumer) token(k ledger.Key) (t ledger.ID, orphan bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ts := c.orphans[k]
	if len(ts) == 0 {
		return ledger.NewID(), false
	}
	if len(ts) == 1 {
		delete(c.orphans, k)
	} else {
		c.orphans[k] = ts[1:]
	}
	return ts[0], true
}

// avoid answers a delivery of a finished job.
func (c *Consumer) avoid(ctx context.Context, w *work, claimed *ledger.Claimed) {
	if w.held == nil {
		return
	}
	d := w.held.delivery()
	cause := ledger.DuplicateMessage
	switch {
	case c.acks.has(d.ID):
		cause = ledger.AckLost
	case d.Receives > 1:
		cause = ledger.Redelivered
	}
	var result []byte
	if claimed.Result != nil {
		result = claimed.Result.Body
	}
	if !c.toldEnd(ctx, w, result) {
		c.nack(ctx, w, c.cfg.Retry.First, true)
		return
	}
	w.log.InfoContext(ctx, "duplicate avoided", "cause", string(cause))
	cost := claimed.Cost
	if claimed.Generation > 1 { // it is of all generations, and one of them is what another run would cost
		cost = nil
	}
	c.tally.add(w.key.Tenant, w.handler.Name(), cause, cost)
	c.trace.avoided(w.job, string(cause), cost)
	c.ack(ctx, w)
}

func mismatch(w *work, claimed *ledger.Claimed) string {
	return fmt.Sprintf("PO406 key %s stands for job %s with input %s already; this message is job %s with input %s. It was not run; give it a key of its own",
		w.key, claimed.Stored.Action, claimed.Stored.InputHash, w.handler.Name(), w.in.Hash)
}
