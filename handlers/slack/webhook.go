package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	api "github.com/slack-go/slack"
	"github.com/slack-go/slack/slackutilsx"

	"github.com/paidonce/paidonce/job"
)

// Webhook makes a step that posts through an incoming webhook, whose address is a secret and names the channel. Slack
// gives such posts no name, and nobody can look for them, so an unknown outcome is held until a person looks into
// the channel. Where a post too many is better than none, set OnUnknown to job.Replay(1).
func Webhook[In job.Keyed](name, address string, write func(In) (Message, error)) job.Step[In, string] {
	return job.Step[In, string]{
		Name: name, Provider: "slack", Timeout: Timeout, MaxRuns: MaxRuns,
		Do: func(ctx context.Context, a *job.Attempt, in In) (string, error) {
			m, err := write(in)
			if err != nil {
				return "", err
			}
			return incoming(ctx, a.Effect(), address, m.Text)
		},
	}
}

// incoming makes the one request of an attempt. No error shows the address.
func incoming(ctx context.Context, c *http.Client, address, text string) (string, error) {
	if text == "" {
		return "", job.Failf("PO610 the message cannot be posted: it has no channel or no text")
	}
	body, err := json.Marshal(api.WebhookMessage{Text: slackutilsx.EscapeMessage(text)})
	if err != nil {
		return "", job.Failf("PO610 the message cannot be posted: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil || req.URL.Host == "" {
		return "", job.Failf("PO611 the address of the incoming webhook is none")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return "", e.Err
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	said := strings.TrimSpace(string(answer))
	switch after, bad := strconv.Atoi(resp.Header.Get("Retry-After")); {
	case resp.StatusCode == http.StatusTooManyRequests && bad == nil && after > 0:
		return "", job.RetryIn(time.Duration(min(after, int(longestWait/time.Second)))*time.Second, errors.New("PO607 Slack refused for now: status 429"))
	case resp.StatusCode == http.StatusOK && err == nil && said == "ok":
		return said, nil
	case resp.StatusCode == http.StatusOK:
		return "", job.Unsure(fmt.Errorf("PO608 it is unknown whether Slack posted: its answer is %.100q", said))
	}
	return "", judgeStatus(resp.StatusCode, said)
}
