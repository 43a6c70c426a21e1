package summarize

import (
	"fmt"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/paidonce/paidonce/job"
)

// The names of the steps. They are part of their keys.
const (
	EmailStep = "email"
	SlackStep = "slack"
)

// DefaultChannel in a ticket's notify.slack is the channel that the worker is configured with.
const DefaultChannel = "default"

// Tell has the steps by which people are told. They are interfaces, so that this package links neither a mail client nor
// Slack's: mail.Step and slack.Step make such. nil: this worker cannot, and a ticket that asks for it fails before anything is paid.
type Tell struct {
	Email   Step[Email]
	Slack   Step[Post]
	Channel string // what DefaultChannel stands for
}

// Step is a job.Step with some result.
type Step[In job.Keyed] interface {
	job.Stepped
	// After asks for the step, as job.Step.After does.
	After(j *job.Run, in In) error
}

// Note is what people are told.
type Note struct {
	Tenant   string `json:"tenant"`
	Ticket   string `json:"ticket"`
	Revision int    `json:"revision"`
	Summary  string `json:"summary"`
}

// Email is the message of the mail's step.
type Email struct {
	Note
	To string `json:"to"`
}

// Post is the message of the Slack step.
type Post struct {
	Note
	Channel string `json:"channel"`
}

// JobKey names the mail of a ticket's revision, such as acme:email:48213:v3. The prompt is no part of it: a summary by another prompt is
// another job and no other news.
func (e Email) JobKey() job.Key { return e.key(EmailStep) }

// JobKey names the post of a ticket's revision, such as acme:slack:48213:v3.
func (p Post) JobKey() job.Key { return p.key(SlackStep) }

func (n Note) key(step string) job.Key { return job.K(n.Tenant, step, n.Ticket).Rev(n.Revision) }

// Subject is one line, whatever the ticket is called.
func (n Note) Subject() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, fmt.Sprintf("Ticket %s, revision %d: summary", n.Ticket, n.Revision))
}

// Text is the whole of it.
func (n Note) Text() string { return n.Subject() + "\n\n" + n.Summary + "\n" }

// maxNote bounds the summary in a note, in bytes: a step's input lies in one row, in JSON, where a byte can be six.
const maxNote = 8 << 10

func note(t Ticket, s Summary) Note {
	text := s.Summary
	if len(text) > maxNote {
		cut := maxNote
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return Note{Tenant: t.Tenant, Ticket: t.Ticket, Revision: t.Revision, Summary: text}
}

func (t Tell) steps() []job.Stepped {
	var all []job.Stepped
	if t.Email != nil {
		all = append(all, t.Email)
	}
	if t.Slack != nil {
		all = append(all, t.Slack)
	}
	return all
}

// after asks for what the ticket wants told.
func (t Tell) after(j *job.Run, ticket Ticket, s Summary) error {
	n := note(ticket, s)
	if to := ticket.Notify.Email; to != "" {
		if err := t.Email.After(j, Email{n, to}); err != nil {
			return err
		}
	}
	if ticket.Notify.Slack == "" {
		return nil
	}
	return t.Slack.After(j, Post{n, t.channel(ticket.Notify)})
}

func (t Tell) channel(n Notify) string {
	if n.Slack == DefaultChannel {
		return t.Channel
	}
	return n.Slack
}

// Longest that an address and the name of a channel can be.
const (
	maxAddress = 320
	maxChannel = 80
)

// check refuses, before anything is paid, to tell somebody who cannot be told.
func (t Tell) check(n Notify) error {
	if n.Email != "" {
		if _, err := mail.ParseAddress(n.Email); err != nil || len(n.Email) > maxAddress || control(n.Email) {
			return job.Failf("PO353 notify.email %.100q is no address", n.Email)
		}
		if t.Email == nil {
			return job.Failf("PO616 notify.email is asked for and this worker sends no mail; nothing was paid. Set steps.email, then retry the job")
		}
	}
	channel := t.channel(n)
	switch {
	case n.Slack == "":
	case t.Slack == nil:
		return job.Failf("PO617 notify.slack is asked for and this worker does not post to Slack; nothing was paid. Set steps.slack, then retry the job")
	case channel == "":
		return job.Failf("PO617 notify.slack is %s and this worker has no default channel; nothing was paid. Set steps.slack.channel, then retry the job", DefaultChannel)
	case len(channel) > maxChannel || control(channel) || strings.ContainsAny(channel, " ,"):
		return job.Failf("PO618 notify.slack %.100q is no channel", n.Slack)
	}
	return nil
}

func control(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
