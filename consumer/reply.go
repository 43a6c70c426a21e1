package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// Reply is the body of an answer to whoever asked for one, by broker.ReplyTo. It is sent before the message is
// acknowledged, and again from the ledger for every duplicate, so it may come more than once; broker.CorrelationID says
// which message it answers.
type Reply struct {
	Key    string          `json:"key"`   // "" for a message that yields none
	Job    string          `json:"job"`   // the handler's name; "" where there is none
	State  string          `json:"state"` // done, failed, unknown or cancelled, as the job is; dead_lettered: the message was refused
	Result json.RawMessage `json:"result"`
	Error  *ReplyError     `json:"error"` // null when done, but for a result that cannot be sent
}

// ReplyError says why there is no result. Class is that of the job, or purged (done, and the result is past its retention), damaged (done, and it cannot be read), too_large
// (done, and the broker takes no message of that size: read it from the ledger) or dead_lettered.
type ReplyError struct {
	Class string `json:"class"`
	Text  string `json:"text"`
}

// address is where a message wants its answer.
type address struct{ to, correlation string }

// ifAsked is the address as work keeps it: nil where nobody wants to be told.
func (a address) ifAsked() *address {
	if a.to == "" {
		return nil
	}
	return new(a)
}

func addressOf(attributes map[string]string) address {
	return address{attributes[broker.ReplyTo], attributes[broker.CorrelationID]}
}

// wanted reports whether somebody asked for an answer and can be told.
func (c *Consumer) wanted(w *work) bool { return c.cfg.Replies != nil && w.reply != nil }

// awaited reports whether a delivery is kept until there is an answer, although the ledger carries its job: the job's origin may
// name somebody else, or nobody.
func (c *Consumer) awaited(w *work) bool { return w.held != nil && c.wanted(w) }

// tell sends an answer if one is wanted, and reports whether the delivery may be acknowledged: an answer that the broker
// does not take now is wanted of the next hand-out. One that nobody will ever take is dropped.
func (c *Consumer) tell(ctx context.Context, w *work, r Reply) bool {
	if !c.wanted(w) {
		return true
	}
	if w.handler != nil {
		r.Job = w.handler.Name()
	}
	err := c.sendReply(ctx, w, r)
	if errors.Is(err, broker.ErrTooLarge) && r.Result != nil {
		r.Error = &ReplyError{"too_large", fmt.Sprintf("the result of %d bytes does not fit into a message; the ledger has it under the key", len(r.Result))}
		r.Result = nil
		err = c.sendReply(ctx, w, r)
	}
	outcome := "sent"
	switch {
	case err == nil:
	case unavailable(err):
		outcome = "unsent"
		w.log.WarnContext(ctx, "answer not sent", "state", r.State, "again", w.held != nil, "error", err)
	default:
		outcome = "unroutable"
		w.log.InfoContext(ctx, "answer dropped: nobody takes it", "state", r.State, "error", err)
	}
	c.trace.replied(w.job, outcome)
	return outcome != "unsent"
}

// replyTime is how long an answer is tried whose message comes again: its slot is wanted by others, and a queue of answers may be full
// for as long as its reader likes.
const replyTime = time.Second

// sendReply tries for as long as a delivery's end is tried, or for replyTime.
func (c *Consumer) sendReply(ctx context.Context, w *work, r Reply) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	m := broker.Message{Body: carried(body), Attributes: map[string]string{"state": r.State}}
	for name, v := range map[string]string{broker.CorrelationID: w.reply.correlation, Attribute: r.Job} {
		if v != "" {
			m.Attributes[name] = v
		}
	}
	most := c.cfg.Drain / 2
	if c.awaited(w) {
		most = min(most, replyTime)
	}
	return repeat(nil, settlePauses, most, func() error {
		sctx, cancel := settling(ctx)
		defer cancel()
		err := c.cfg.Replies.Reply(sctx, w.reply.to, m)
		if err != nil && (!unavailable(err) || errors.Is(err, broker.ErrClosed)) {
			return permanent{err}
		}
		return err
	})
}

// ackTold acknowledges what has an end, when whoever asked for it has been told. Else the delivery is given back, and
// answered from the ledger when it comes again. result is that of a job that is done, nil: the ledger is asked.
func (c *Consumer) ackTold(ctx context.Context, w *work, result []byte) {
	if c.toldEnd(ctx, w, result) || w.held == nil {
		c.ack(ctx, w)
		return
	}
	c.nack(ctx, w, c.cfg.Retry.First, true)
}

// toldEnd reports whether nobody waits for the answer any more.
func (c *Consumer) toldEnd(ctx context.Context, w *work, result []byte) bool {
	if !c.wanted(w) {
		return true
	}
	r := Reply{Key: w.key.Text, State: string(ledger.Done), Result: result}
	if result == nil {
		var err error
		if r, err = c.stored(ctx, w); errors.Is(err, ledger.ErrDamaged) { // it will not be better the next time
			w.log.ErrorContext(ctx, "the result that is asked for is damaged", "error", err)
			r = Reply{Key: w.key.Text, State: string(ledger.Done), Error: &ReplyError{"damaged", "the job is done, and its result cannot be read any more"}}
		} else if err != nil {
			w.log.WarnContext(ctx, "answer not sent", "again", w.held != nil, "error", err)
			c.trace.replied(w.job, "unsent")
			return false
		}
	}
	return c.tell(ctx, w, r)
}

// stored is the answer by what the ledger has.
func (c *Consumer) stored(ctx context.Context, w *work) (Reply, error) {
	rctx, cancel := settling(ctx)
	defer cancel()
	j, err := c.store.Job(rctx, w.key)
	if err != nil {
		return Reply{}, fmt.Errorf("read %s for its answer: %w", w.key, err)
	}
	r := Reply{Key: w.key.Text, State: string(j.State)}
	switch {
	case j.State == ledger.Done && j.Result != nil:
		r.Result = j.Result.Body
	case j.State == ledger.Done:
		r.Error = &ReplyError{"purged", "the result is past its retention"}
	case j.State == ledger.Failed && j.Error != nil:
		r.Error = &ReplyError{j.Error.Class, c.shown(w.handler, j.Error.Text)}
	case j.State == ledger.Cancelled:
		r.Error = &ReplyError{"cancelled", "a person cancelled the job"}
	case j.State == ledger.Unknown:
		r.Error = &ReplyError{"held", "the outcome of a paid call is unknown; the job is held until it is found out or decided"}
	default:
		return r, fmt.Errorf("%s has no end to tell of: it is %s again", w.key, j.State)
	}
	return r, nil
}
