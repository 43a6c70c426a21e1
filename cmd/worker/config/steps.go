package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/paidonce/paidonce/handlers/mail"
)

// checkSteps finds accounts for side effects that are not whole.
func (l *loader) checkSteps() {
	e, s := l.config.Steps.Email, l.config.Steps.Slack
	url, from, token := e.SMTPURL.Reveal(), e.From, s.Token.Reveal()
	switch {
	case url == "" && from != "":
		l.at("PO619", "steps.email.from", "there is no mail server to send by; set steps.email.smtp_url, or take it out")
	case url != "" && from == "":
		l.at("PO619", "steps.email.from", "mail needs a sender; write one such as Support <support@acme.example>")
	case url != "" && !l.faulty("steps.email.smtp_url"):
		if _, err := mail.NewServer(url, from); err != nil {
			code, text, _ := strings.Cut(err.Error(), " ")
			l.at(code, map[bool]string{true: "steps.email.from", false: "steps.email.smtp_url"}[errors.Is(err, mail.ErrSender)], text)
		}
	}
	for _, f := range []struct {
		path string
		set  bool
	}{{"steps.slack.base_url", s.BaseURL.Reveal() != ""}, {"steps.slack.channel", s.Channel != ""}} {
		if f.set && token == "" {
			l.at("PO619", f.path, "nothing is posted without a token; set steps.slack.token, or take it out")
		}
	}
}

// faulty reports whether the setting has a fault already.
func (l *loader) faulty(path string) bool {
	return slices.ContainsFunc(l.faults, func(f Fault) bool { return f.Path == path })
}

// MailServer is where mail is handed in; nil: no mail is sent. The configuration must have no fault.
func (c *Config) MailServer() *mail.Server {
	if c.Steps.Email.SMTPURL.Reveal() == "" {
		return nil
	}
	s, err := mail.NewServer(c.Steps.Email.SMTPURL.Reveal(), c.Steps.Email.From)
	if err != nil {
		return nil // a fault, and reported
	}
	return s
}
