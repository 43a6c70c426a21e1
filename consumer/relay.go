package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const (
	// relayBatch bounds the results whose messages are published together. Beside as many as there are slots for, this is
	// what a worker holds of the outbox in memory, however much is in it.
	relayBatch = 32
	// publishTime bounds one try. What is taken from the outbox is this worker's for longer.
	publishTime = ledger.MessageHold / 2
)

// announce hands the messages of a result that is on record to the relay. More than it can hold are left in the outbox, and so are
// those of a job that was run again: those of its earlier result may still be there, and come first.
func (c *Consumer) announce(w *work, lease *ledger.Lease, res *ledger.Result) {
	if len(res.Messages) == 0 || c.cfg.Publisher == nil || w.rerun {
		return
	}
	ms := make([]ledger.Outgoing, len(res.Messages))
	for i, m := range res.Messages {
		id := ledger.OutgoingID{Tenant: lease.Key.Tenant, Job: lease.Job, Result: res.ID, N: i + 1}
		ms[i] = ledger.Outgoing{ID: id, Action: m.Action, Body: m.Body, Origin: w.knownOrigin()}
	}
	select {
	case c.outbox <- ms:
	default:
	}
}

// relay publishes what results ask for: those of this worker at once, and whatever is left in the outbox, by workers that died or
// while the broker was away. Once something could not be published it comes back by the outbox alone.
func (c *Consumer) relay(ctx context.Context) {
	wait := pauses{first: time.Second, ceil: ledger.MessageHold}
	look, down := time.Now().Add(min(soon, c.cfg.Tick)), false
	for {
		var ms []ledger.Outgoing
		full := false
		timer := time.NewTimer(time.Until(look))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case first := <-c.outbox:
			timer.Stop()
			if down {
				continue
			}
			ms = c.gather(first)
		case <-timer.C:
			ms, full = c.take(ctx)
			look = time.Now().Add(c.cfg.Tick)
			if down && len(ms) == 0 { // others have them just now: that says nothing of the broker
				look = time.Now().Add(wait.next())
				continue
			}
		}
		down = !c.publish(ctx, ms)
		switch {
		case down:
			look = time.Now().Add(wait.next())
			continue
		case full:
			look = time.Now()
		}
		wait.reset()
	}
}

// gather adds the messages of results that wait already.
func (c *Consumer) gather(ms []ledger.Outgoing) []ledger.Outgoing {
	for range relayBatch - 1 {
		select {
		case more := <-c.outbox:
			ms = append(ms, more...)
		default:
			return ms
		}
	}
	return ms
}

// take takes messages from the outbox, and reports whether there may be more.
func (c *Consumer) take(ctx context.Context) ([]ledger.Outgoing, bool) {
	sctx, cancel := settling(ctx)
	defer cancel()
	ms, err := c.store.TakeMessages(sctx, relayBatch, ledger.MessageHold)
	if err != nil {
		c.log.WarnContext(ctx, "outbox not read", "error", err)
	}
	return ms, len(ms) >= relayBatch
}

// publish publishes messages, job by job in order, and forgets those that the broker has confirmed. It is false when the broker
// does not take anything now.
func (c *Consumer) publish(ctx context.Context, ms []ledger.Outgoing) bool {
	ms = c.readable(ctx, ms)
	if len(ms) == 0 {
		return true
	}
	err := c.send(ctx, ms)
	if err != nil && (unavailable(err) || ctx.Err() != nil) {
		c.log.WarnContext(ctx, "messages not published; they stay in the outbox", "messages", len(ms), "error", err)
		return false
	}
	sent := ms
	if err != nil { // one of them may be to blame
		sent = nil
		for _, of := range byJob(ms) {
			if err := c.send(ctx, of); err != nil {
				c.log.ErrorContext(ctx, "message not published; it stays in the outbox and is tried again", "job", of[0].Action, "asked_by", of[0].ID.Job, "error", err)
				continue
			}
			sent = append(sent, of...)
		}
	}
	c.drop(ctx, sent)
	return true
}

// readable leaves out what this worker has no key for, or is damaged.
func (c *Consumer) readable(ctx context.Context, ms []ledger.Outgoing) (can []ledger.Outgoing) {
	for _, m := range ms {
		if m.Fault == nil {
			can = append(can, m)
		} else if c.first(m.Fault.Error()) {
			c.log.ErrorContext(ctx, "message in the outbox cannot be read; it stays there", "job", m.Action, "asked_by", m.ID.Job, "error", m.Fault)
		}
	}
	return can
}

func (c *Consumer) drop(ctx context.Context, ms []ledger.Outgoing) {
	if len(ms) == 0 {
		return
	}
	ids := make([]ledger.OutgoingID, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	sctx, cancel := settling(ctx)
	defer cancel()
	if err := c.store.DropMessages(sctx, ids); err != nil {
		c.log.WarnContext(ctx, "published messages stay in the outbox and are published again", "messages", len(ms), "error", err)
	}
}

// send publishes messages together. nil: the broker has confirmed all of them.
func (c *Consumer) send(ctx context.Context, ms []ledger.Outgoing) error {
	pctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	out := make([]broker.Message, len(ms))
	for i, m := range ms {
		out[i] = broker.Message{ID: fmt.Sprintf("%s/%d", m.ID.Result, m.ID.N), Body: carried(m.Body), Attributes: attributes(m)}
	}
	return published(pctx, c.cfg.Publisher, out)
}

// carried is JSON as every broker takes it: SQS refuses two characters, which JSON has as escapes too.
func carried(body []byte) []byte {
	if !bytes.Contains(body, []byte("\xef\xbf")) { // what both begin with
		return body
	}
	body = bytes.ReplaceAll(body, []byte("\uFFFE"), []byte(`\ufffe`))
	return bytes.ReplaceAll(body, []byte("\uFFFF"), []byte(`\uffff`))
}

// published publishes; a panic of the adapter is an error.
func published(ctx context.Context, p broker.Publisher, ms []broker.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = job.Panicked(v)
		}
	}()
	return p.Publish(ctx, ms...)
}

// attributes of a message: the job it is for, and the trace of the one that asked.
func attributes(m ledger.Outgoing) map[string]string {
	a := map[string]string{Attribute: m.Action}
	for name, v := range map[string]string{"traceparent": m.Origin.Trace, "tracestate": m.Origin.TraceState} {
		if v != "" {
			a[name] = v
		}
	}
	return a
}

// unavailable reports whether the broker, and not a message, is why nothing was published.
func unavailable(err error) bool {
	return errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrClosed) || errors.Is(err, context.DeadlineExceeded)
}

// byJob splits messages by the jobs that asked for them, which they are in the order of.
func byJob(ms []ledger.Outgoing) (all [][]ledger.Outgoing) {
	for i, m := range ms {
		if i == 0 || m.ID.Tenant != ms[i-1].ID.Tenant || m.ID.Job != ms[i-1].ID.Job {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], m)
	}
	return all
}
