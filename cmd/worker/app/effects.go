package app

import (
	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/handlers/slack"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/job"
)

// effects registers the steps that are configured, and returns them for the jobs that ask for them.
func effects(cfg *config.Config, reg *job.Registry) summarize.Tell {
	var tell summarize.Tell
	if s := cfg.MailServer(); s != nil {
		step := mail.Step(summarize.EmailStep, s, func(e summarize.Email) (mail.Message, error) {
			return mail.Message{To: []string{e.To}, Subject: e.Subject(), Text: e.Text()}, nil
		})
		step.Redact = summarize.Redact
		job.RegisterStep(reg, step)
		tell.Email = step
	}
	if cfg.Steps.Slack.Token.Reveal() != "" {
		step := slack.Step(summarize.SlackStep, workspace(cfg), func(p summarize.Post) (slack.Message, error) {
			return slack.Message{Channel: p.Channel, Text: p.Text()}, nil
		})
		step.Redact = summarize.Redact
		job.RegisterStep(reg, step)
		tell.Slack, tell.Channel = step, cfg.Steps.Slack.Channel
	}
	return tell
}

func workspace(cfg *config.Config) slack.Workspace {
	s := cfg.Steps.Slack
	return slack.Workspace{BaseURL: s.BaseURL.Reveal(), Token: s.Token.Reveal()}
}
