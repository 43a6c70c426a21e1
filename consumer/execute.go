package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Why a work context ends; read with context.Cause.
var (
	errRunOver   = errors.New("PO340 the run is past its deadline")
	errDrainOver = errors.New("PO341 the worker's drain time is over")
)

// execution is a run of the handler and what becomes of it, on a goroutine of its own. While a model is waited for, it is
// there for each of thousands, so what it needs lies here and not in the frames below the handler.
type execution struct {
	c       *Consumer
	ctx     context.Context // of the delivery
	w       *work
	run     *job.Run
	under   context.Context // the work context
	cancel  context.CancelCauseFunc
	over    *time.Timer // ends it at the run's deadline
	started time.Time
}

// execute begins the run of the handler under its lease. The run's goroutine has w in hand from here.
func (c *Consumer) execute(ctx context.Context, w *work, number int) {
	x := &execution{c: c, ctx: ctx, w: w, started: time.Now()}
	lease, _ := c.owned(w)
	c.named(w, w.job, number, lease.Fence)
	x.under, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.over = time.AfterFunc(time.Until(lease.Deadline), func() { x.cancel(errRunOver) })
	c.owns(w, lease, x.cancel)
	x.run = c.newRun(x.under, w, number)
	c.runs.Go(x.live)
}

// live is the goroutine.
func (x *execution) live() { x.c.inHand(x.ctx, x.c.runner.Paid, x.w, x.story) }

// story runs the handler, concludes the run, and does what is left. It reports whether a later run has the work in hand.
func (x *execution) story() (passed bool) {
	defer x.stop()
	out, err := []byte(nil), x.w.undecodable
	if err == nil {
		out, err = x.w.handler.Run(x.under, x.run, &x.w.in)
	}
	return x.concluded(out, err)
}

// stop ends the work context.
func (x *execution) stop() {
	x.over.Stop()
	x.cancel(nil)
}

// concluded makes the end of the run durable, whose handler has returned.
func (x *execution) concluded(out []byte, err error) (passed bool) {
	c, w := x.c, x.w
	if w.undecodable != nil {
		err = job.Fail(err)
	} else {
		err = c.told(x.under, w, x.run, err)
	}
	state, again := c.conclude(x.under, x.c.runner.Paid, w, x.run, out, err)
	c.trace.ended(w.job, state, x.started.Sub(w.since), time.Since(x.started))
	x.stop() // nothing of it is under way any more, and what follows may take long
	return c.anew(x.ctx, x.c.runner.Paid, w, again)
}

// dayBudget is the class of a run whose next call has no room in a budget of the day.
const dayBudget = "day_budget"

// resting is the class of a run that sent nothing since every route of a call rests.
const resting = "resting"

// inCommon is what all runs have in common. paid is what paid calls live under.
func (c *Consumer) inCommon(paid context.Context) *job.Worker {
	return job.NewWorker(job.Worker{Ledger: c.store, Who: c.cfg.Name, Paid: paid, DrainLeft: c.drainLeft, Wire: c.cfg.Wire, Price: c.price,
		Publishes: c.cfg.Publisher != nil, Saw: c.trace.called})
}

func (c *Consumer) newRun(ctx context.Context, w *work, number int) *job.Run {
	lease, _ := c.owned(w)
	return job.NewRun(job.RunConfig{Worker: c.runner, Lease: lease, Number: number, Origin: w.origin, Ended: func() error { return context.Cause(ctx) },
		Log: w.log, Action: w.job, Day: c.cfg.Budgets.of(lease.Key.Tenant, w.handler.Name())})
}

// told is the error of a run whose handler has returned err.
func (c *Consumer) told(ctx context.Context, w *work, run *job.Run, err error) error {
	if p, ok := errors.AsType[*job.PanicError](err); ok {
		w.log.ErrorContext(ctx, "handler panicked", "panic", c.shown(w.handler, fmt.Sprint(p.Value)), "stack", string(p.Stack))
	}
	if sticky := run.Sticky(); sticky != nil && !errors.Is(err, sticky) {
		err = errors.Join(sticky, err) // the handler swallowed it, or tells it in its own words
	}
	return err
}

// conclude makes the end of a run durable, then settles its delivery, or says when it
// wants the next look.
func (c *Consumer) conclude(ctx, paid context.Context, w *work, run *job.Run, out []byte, err error) (ledger.State, *later) {
	run.Tidy(c.common(ctx))
	lease, _ := c.owned(w)
	if err == nil {
		res := run.Result(out)
		err = c.persist(ctx, paid, func(ctx context.Context) error { return c.store.Complete(ctx, *lease, res) })
		if err == nil {
			w.log.InfoContext(ctx, "job done")
			c.follow(res.Steps)
			c.announce(w, lease, &res)
			c.ackTold(ctx, w, out)
			if run.MayWaste() || w.held == nil { // runs before a person's order are not counted
				c.wasted(ctx, w)
			}
			return ledger.Done, nil
		}
	}
	o := c.outcome(ctx, run.Number(), run.Idle(), err)
	if o.Error.Class == dayBudget {
		c.trace.overDay(w.job)
	}
	if o.Error.Class == dayBudget || o.Error.Class == noRoom {
		o.GiveBack = !run.Paid() // what is paid at every run must not be paid for without end
	}
	return c.release(ctx, paid, w, o, err)
}

// release ends a run without a result, because of err, and settles its delivery, or says
// when it wants the next look.
func (c *Consumer) release(ctx, paid context.Context, w *work, o ledger.Outcome, err error) (ledger.State, *later) {
	lease, _ := c.owned(w)
	level := slog.LevelWarn
	if o.Error.Class == string(job.Waiting) || o.Error.Class == dayBudget {
		level = slog.LevelInfo
		c.carry(ctx, paid, w)
	}
	var rel ledger.Released
	rerr := c.persist(ctx, paid, func(ctx context.Context) (err error) {
		rel, err = c.store.Release(ctx, *lease, o)
		return err
	})
	if errors.Is(rerr, ledger.ErrLost) && w.abandoned.Load() {
		return ledger.Running, nil // the drain recorded its end meanwhile, and settles its delivery by that
	}
	if rerr != nil {
		// Somebody else decides now, or the ledger is out of reach: the delivery
		// comes back and finds out.
		w.log.WarnContext(ctx, "end of the run not recorded; the delivery is given back", "error", c.shown(w.handler, err.Error()), "release_error", rerr)
		c.nack(ctx, w, c.cfg.Retry.First, false)
		return ledger.Running, nil
	}
	w.log.Log(ctx, level, "run ended without a result", "state", string(rel.State), "class", o.Error.Class, "error", c.shown(w.handler, err.Error()), "retry_in", rel.RetryIn)
	switch {
	case rel.State.Terminal(), rel.State == ledger.Unknown && rel.Carrier == ledger.CarriedByLedger:
		c.ackTold(ctx, w, nil)
	case rel.Carrier == ledger.CarriedByLedger && c.awaited(w):
		return rel.State, &later{in: rel.RetryIn, unused: true}
	case rel.Carrier == ledger.CarriedByLedger:
		c.ack(ctx, w)
	case rel.State == ledger.Unknown:
		return rel.State, &later{in: c.heldFor(rel.RetryIn), unused: true}
	case o.Error.Class == resting, o.Error.Class == dayBudget, o.Error.Class == noRoom && o.GiveBack:
		return rel.State, &later{in: rel.RetryIn, unused: true}
	case o.GiveBack: // for another worker: this one drains, has lost its lease, or lacks a key
		c.nack(ctx, w, rel.RetryIn, true)
	default:
		return rel.State, &later{in: rel.RetryIn}
	}
	return rel.State, nil
}

// carry makes the ledger the carrier of a job that waits: a broker may not hold its message for as long, and
// counts hand-outs. Where it cannot, the message is given back.
func (c *Consumer) carry(ctx, paid context.Context, w *work) {
	lease, _ := c.owned(w)
	err := c.persist(ctx, paid, func(ctx context.Context) error { return c.store.Carry(ctx, *lease) })
	if err != nil {
		w.log.InfoContext(ctx, "the broker carries the job on while it waits", "error", err)
	}
}

// persist repeats a write until the ledger answers: an outage must not cost an
// answer. It ends with the drain time.
func (c *Consumer) persist(ctx, paid context.Context, write func(context.Context) error) error {
	return repeat(paid.Done(), pauses{first: 50 * time.Millisecond, ceil: 2 * time.Second}, 0, func() error {
		err := write(c.common(ctx))
		switch {
		case err == nil:
		case final(err):
			return permanent{err}
		default:
			c.log.WarnContext(ctx, "ledger write repeated", "error", err)
		}
		return err
	})
}

// final reports whether the ledger understood and refused.
func final(err error) bool {
	for _, e := range []error{ledger.ErrLost, ledger.ErrOpen, ledger.ErrHook, ledger.ErrState, ledger.ErrNotFound,
		ledger.ErrNoInput, ledger.ErrCancelled, ledger.ErrTooEarly, ledger.ErrSchema, ledger.ErrRequest} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// keyWait is how long a job rests that was given back for want of an encryption key. A worker that has the key may
// be started at any time, and this one may be handed the job again.
const keyWait = time.Minute

// noRoom is the class of a run that could not go on since the ledger has no room to write.
const noRoom = "ledger_full"

// fullWait is how long the job of such a run rests. It is so short that the message waits here, and no hand-out is counted.
const fullWait = 3 * time.Second

// outcome decides what the end of a run means for its job. The ledger has the last
// word: with calls open the job is unknown whatever is asked for here. idle: the run sent nothing.
func (c *Consumer) outcome(ctx context.Context, run int, idle bool, err error) ledger.Outcome {
	o := ledger.Outcome{Who: c.cfg.Name, MaxPanics: c.cfg.MaxPanics, Error: ledger.JobError{Class: "retry", Text: c.cfg.Scrub(err.Error())}}
	cause := context.Cause(ctx)
	class, in := job.ClassOf(err)
	_, panicked := errors.AsType[*job.PanicError](err)
	switch {
	case errors.Is(err, job.ErrStopping), errors.Is(cause, errDrainOver):
		o.GiveBack, o.Error.Class = true, "drain"
	case errors.Is(err, job.ErrHeld), errors.Is(err, ledger.ErrOpen):
		o.GiveBack, o.Error.Class = true, "held"
	case errors.Is(err, ledger.ErrKey):
		o.GiveBack, o.Error.Class, o.RetryIn = idle, "encryption_key", keyWait // what it paid for before must not be paid for without end
	case errors.Is(err, ledger.ErrFull): // no run is spent on an outage
		o.Error.Class, o.RetryIn = noRoom, jitter.Quarter(fullWait)
	case errors.Is(err, job.ErrCancelled):
		o.Error.Class = "cancelled"
	case errors.Is(err, job.ErrLost):
		o.GiveBack, o.Error.Class = true, "lost"
	case errors.Is(err, job.ErrBudget):
		o.Fail, o.Error.Class = true, "budget"
	case errors.Is(err, job.ErrCalls):
		o.Fail, o.Error.Class = true, "calls"
	case errors.Is(err, job.ErrLifetime):
		o.Fail, o.Error.Class = true, "lifetime"
	case errors.Is(err, job.ErrDayBudget):
		o.Error.Class, o.RetryIn = dayBudget, tilBudget(time.Now())
	case errors.Is(err, job.ErrTooLarge), errors.Is(err, ledger.ErrTooLarge):
		o.Fail, o.Error.Class = true, "result_too_large"
	case errors.Is(err, job.ErrMismatch):
		o.Fail, o.Error.Class = true, "mismatch"
	case panicked:
		o.Panicked, o.Error.Class, o.RetryIn = true, "panic", c.backoff(run)
	case class == job.Waiting:
		o.GiveBack, o.Error.Class, o.RetryIn = true, string(class), max(in, c.backoff(1))
	case class == job.Permanent:
		o.Fail, o.Error.Class = true, string(class)
	case errors.Is(err, job.ErrResting) && idle:
		o.GiveBack, o.Error.Class, o.RetryIn = true, resting, max(in, time.Second)
	case errors.Is(cause, errRunOver):
		o.Error.Class, o.RetryIn = "run_deadline", c.backoff(run)
	default:
		o.RetryIn = max(in, c.backoff(run))
	}
	return o
}

// budgetLook is how often a job that waits for a budget looks whether there is room: a limit may have been raised.
const budgetLook = time.Hour

// tilBudget is how long such a job waits: until the day of UTC is over, with some jitter, and no longer than budgetLook.
func tilBudget(now time.Time) time.Duration {
	midnight := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	wait := min(midnight.Sub(now)+time.Second, budgetLook)
	return wait + jitter.Below(time.Minute)
}

// backoff is the wait after the n-th run.
func (c *Consumer) backoff(n int) time.Duration {
	d := c.cfg.Retry.First << min(max(n-1, 0), 30)
	if d <= 0 || d > c.cfg.Retry.Ceil {
		d = c.cfg.Retry.Ceil
	}
	return jitter.Quarter(d)
}

// settlePauses are between tries to tell a broker something.
var settlePauses = pauses{first: 100 * time.Millisecond, ceil: 5 * time.Second}

// Settling a delivery. Each is tried for a while, since a broker that cannot be
// told hands the message out again and the ledger answers it then; nothing is lost.

func (c *Consumer) ack(ctx context.Context, w *work) { c.ackAs(ctx, w, "acked") }

func (c *Consumer) ackAs(ctx context.Context, w *work, outcome string) {
	c.settle(ctx, w, true, func(ctx context.Context, h *held) (string, error) {
		d := h.delivery()
		if !h.isLost() { // that it comes again then is no lost ack
			c.acks.add(d.ID)
		}
		return outcome, c.cfg.Source.Ack(ctx, d)
	})
}

// nack gives the delivery back. unused says that no run was tried on it, so
// the hand-out does not count where the adapter keeps the count.
func (c *Consumer) nack(ctx context.Context, w *work, delay time.Duration, unused bool) {
	c.settle(ctx, w, false, func(ctx context.Context, h *held) (string, error) {
		d := h.delivery()
		if unused && !w.tried.Load() && d.Receives > 0 {
			d.Receives--
		}
		return "nacked", c.cfg.Source.Nack(ctx, d, delay)
	})
}

func (c *Consumer) deadLetter(ctx context.Context, w *work, reason string) {
	reason = c.cfg.Scrub(reason)
	c.tell(ctx, w, Reply{Key: w.key.Text, State: "dead_lettered", Error: &ReplyError{"dead_lettered", c.shown(w.handler, reason)}})
	c.settle(ctx, w, false, func(ctx context.Context, h *held) (string, error) {
		err := c.cfg.Source.DeadLetter(ctx, h.delivery(), reason)
		if errors.Is(err, broker.ErrUnroutable) {
			c.noDeadLetters(ctx, w, reason, err)
			return "unroutable", c.cfg.Source.Nack(ctx, h.delivery(), longestWait)
		}
		if err == nil {
			w.log.WarnContext(ctx, "message dead-lettered", "job", w.job, "reason", c.shown(w.handler, reason))
		}
		return "dead_lettered", err
	})
}

// noDeadLetters says once, loudly, that nobody has a place for what should be set aside.
func (c *Consumer) noDeadLetters(ctx context.Context, w *work, reason string, err error) {
	level := slog.LevelDebug
	c.deadOnce.Do(func() { level = slog.LevelError })
	w.log.Log(ctx, level, "there is no dead-letter queue: the message comes back for ever", "job", w.job, "reason", c.shown(w.handler, reason),
		"again_in", longestWait, "error", err)
}

// settle ends a delivery by do, which names the outcome that it is after. One that the broker
// took back has been counted; a late ack may still remove the message, if nobody has it.
func (c *Consumer) settle(ctx context.Context, w *work, ack bool, do func(context.Context, *held) (outcome string, err error)) {
	if w.held == nil || !w.held.take(ack) {
		return // the ledger carries the job, or the delivery was handed off or lost
	}
	var outcome string
	err := repeat(nil, settlePauses, c.cfg.Drain/2, func() (err error) {
		outcome, err = do(c.common(ctx), w.held)
		if errors.Is(err, broker.ErrNotHeld) || errors.Is(err, broker.ErrTooLarge) {
			return permanent{err}
		}
		return err
	})
	job, log := c.called(w)
	if w.held.isLost() {
		log.InfoContext(ctx, "acknowledged late; the broker may hand the message out again", "error", err)
		return
	}
	if err != nil {
		outcome = "lost"
		log.InfoContext(ctx, "delivery not settled; the broker hands it out again", "error", err)
	}
	c.trace.delivered(job, outcome)
}

// shown is an error's text for logs and replies: without the program's secrets, and as the job's Redact shows it.
func (c *Consumer) shown(h *job.Handler, text string) string { return h.ShownText(c.cfg.Scrub(text)) }
