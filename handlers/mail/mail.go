// Package mail sends mail as a step of a job: over SMTP, once.
//
//	server, err := mail.NewServer("smtps://worker:secret@mail.example", "Support <support@acme.example>")
//	tell := mail.Step("email", server, func(n Note) (mail.Message, error) {
//		return mail.Message{To: []string{n.To}, Subject: "Ticket " + n.Ticket, Text: n.Text}, nil
//	})
//
// A server accepts a mail when it has read the dot that ends it, so the sent mark goes on record immediately before that dot.
// Whatever fails earlier (no connection, no TLS, a login or a recipient that is refused, a message that breaks off) has sent nothing and
// leaves no attempt behind. A refusal of the dot is definite, too. What is left is a dot without a reply: the mail may
// have been accepted, nothing sends it again, and the step is held.
//
// SMTP has nobody to ask what became of a mail. Every mail has a Message-ID that its step's key determines ([MessageID]), which is what
// to look for in the server's log or the mailbox, by a person or by a Reconcile of your own:
//
//	tell.Reconcile = func(ctx context.Context, o job.Open, n Note) (mail.Receipt, job.Finding, error) {
//		id := server.MessageID(o.Key)
//		…
//	}
package mail

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Message is one mail.
type Message struct {
	To      []string // addresses, such as "Ann <ann@acme.example>"; at least one. A server must take all of them, or none is sent to
	Subject string   // one line
	Text    string   // the plain body
	HTML    string   // the same for readers that show it; "": none
}

// Receipt is the result of the step.
type Receipt struct {
	MessageID string `json:"message_id"`      // without angle brackets
	Reply     string `json:"reply,omitempty"` // the server's, such as "2.0.0 Ok: queued as 4F2Lq1"
}

// Timeout is that of one attempt, connection and login included.
const Timeout = time.Minute

// MaxRuns is how often a step is tried where nothing was sent or the answer was "not now": by the consumer's usual waits for
// half a day, so that an outage of a mail server needs nobody's help.
const MaxRuns = 60

// Step makes a step that sends mail through s. write makes the mail of a step's input, and must make the same of the
// same: it runs again when an attempt failed. Its errors have the classes that those of handlers have.
//
// An unknown outcome is held. The step may be changed before it is registered: OnUnknown, Reconcile, Retry, Timeout, MaxRuns.
func Step[In job.Keyed](name string, s *Server, write func(In) (Message, error)) job.Step[In, Receipt] {
	return job.Step[In, Receipt]{
		Name: name, Provider: "smtp", Timeout: Timeout, MaxRuns: MaxRuns,
		Do: func(ctx context.Context, a *job.Attempt, in In) (Receipt, error) {
			m, err := write(in)
			if err != nil {
				return Receipt{}, err
			}
			return s.send(ctx, a, m)
		},
	}
}

// MessageID is the Message-ID, without angle brackets, of the mail of the step with that key. It tells nothing of the key.
func (s *Server) MessageID(k ledger.Key) string {
	h := sha256.Sum256([]byte(k.Tenant + "\x00" + k.Text))
	from := s.from.Address
	return "paidonce." + hex.EncodeToString(h[:16]) + from[strings.LastIndexByte(from, '@'):] // a quoted local part may hold one, too
}

// send hands a mail in.
func (s *Server) send(ctx context.Context, a *job.Attempt, m Message) (Receipt, error) {
	id := s.MessageID(a.Key())
	to, text, err := s.render(m, id)
	if err != nil {
		return Receipt{}, job.Fail(err)
	}
	a.Object(id)
	c, err := s.open(ctx)
	if err != nil {
		return Receipt{}, s.unsent(ctx, err)
	}
	defer c.end()
	if err := c.offer(s.from, to, text); err != nil {
		return Receipt{}, s.unsent(ctx, err)
	}
	if err := a.Sent(ctx); err != nil {
		return Receipt{}, err // the connection ends without the dot
	}
	reply, err := c.dot()
	if err != nil {
		return Receipt{}, s.judged(ctx, err)
	}
	return Receipt{MessageID: id, Reply: reply}, nil
}

// unsent is the error of a mail that was certainly not handed in.
func (s *Server) unsent(ctx context.Context, err error) error {
	if said, ok := errors.AsType[*textproto.Error](err); ok {
		return s.refused(said, err)
	}
	if lack, ok := errors.AsType[*lackError](err); ok {
		return job.Failf("PO606 mail server %s: %w; nothing was sent", s.addr, lack)
	}
	return job.Retry(fmt.Errorf("PO604 nothing was sent by mail server %s: %w", s.addr, cause(ctx, err)))
}

// judged is the error of a mail whose last dot went out.
func (s *Server) judged(ctx context.Context, err error) error {
	if said, ok := errors.AsType[*textproto.Error](err); ok && (said.Code/100 == 4 || said.Code/100 == 5) {
		return s.refused(said, err)
	}
	return job.Unsure(fmt.Errorf("PO605 outcome unknown: mail server %s was given the whole mail and did not say whether it took it: %w", s.addr, cause(ctx, err)))
}

// refused is a definite no: for now, or for good.
func (s *Server) refused(said *textproto.Error, err error) error {
	err = fmt.Errorf("PO603 mail server %s refused: %w", s.addr, err)
	if said.Code/100 == 5 {
		return job.Fail(err)
	}
	return job.Retry(err)
}

// cause prefers why the attempt ended to what that did to the connection.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, net.ErrClosed) || timedOut(err)) {
		return context.Cause(ctx)
	}
	return err
}

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
