package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
		step.Redact, step.Timeout = summarize.Redact, stepTimeout(cfg, step.Timeout)
		job.RegisterStep(reg, step)
		tell.Email = step
	}
	if cfg.Steps.Slack.Token.Reveal() != "" {
		step := slack.Step(summarize.SlackStep, workspace(cfg), func(p summarize.Post) (slack.Message, error) {
			return slack.Message{Channel: p.Channel, Text: p.Text()}, nil
		})
		step.Redact, step.Timeout = summarize.Redact, stepTimeout(cfg, step.Timeout)
		job.RegisterStep(reg, step)
		tell.Slack, tell.Channel = step, cfg.Steps.Slack.Channel
	}
	return tell
}

// stepTimeout is a step's own timeout, and no longer than the longest route of the job that asks for it, so that
// whoever sets short windows for a worker sets them in one place.
func stepTimeout(cfg *config.Config, own time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, r := range cfg.Jobs[summarize.Name].Routes {
		longest = max(longest, r.Timeout.Std())
	}
	if longest == 0 {
		return own
	}
	return min(own, longest)
}

func workspace(cfg *config.Config) slack.Workspace {
	s := cfg.Steps.Slack
	return slack.Workspace{BaseURL: s.BaseURL.Reveal(), Token: s.Token.Reveal()}
}

// stepAccounts reaches whom the configured steps go to. Nothing is sent to anybody.
func stepAccounts(ctx context.Context, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var errs []error
	if s := cfg.MailServer(); s != nil {
		if err := s.Check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("PO615 the mail server of steps.email cannot be used: %w", err))
		}
	}
	if cfg.Steps.Slack.Token.Reveal() != "" {
		if err := workspace(cfg).Check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("PO615 Slack cannot be used by steps.slack: %w", err))
		}
	}
	return errors.Join(errs...)
}

// aboutSteps says where the configured steps go.
func aboutSteps(cfg *config.Config) string {
	var all []string
	if s := cfg.MailServer(); s != nil {
		all = append(all, "mail by "+s.Addr())
	}
	if cfg.Steps.Slack.Token.Reveal() != "" {
		all = append(all, "Slack at "+cmp.Or(cfg.Steps.Slack.BaseURL.String(), "its own address"))
	}
	if len(all) == 0 {
		return "none is configured; tickets with notify are refused before anything is paid"
	}
	return strings.Join(all, ", ")
}
