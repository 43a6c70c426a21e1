// Package slack posts to Slack as a step of a job, once.
//
//	workspace := slack.Workspace{Token: "xoxb-…"}
//	tell := slack.Step("slack", workspace, func(n Note) (slack.Message, error) {
//		return slack.Message{Channel: "C0123456789", Text: n.Text}, nil
//	})
//
// Slack has no key by which a repeated post would be one. So every message carries the step's key and the attempt as metadata, and after a
// lost reply the channel's history is asked for it: there it is, and the step is done; or it is not, and the step is sent again. The
// token needs chat:write, and for the look-up channels:history (of private channels groups:history, of direct messages im:history). A look-up
// that cannot be made, or proves nothing, leaves the step held.
//
// An incoming webhook ([Webhook]) has no look-up: what is unknown there is held.
package slack

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	api "github.com/slack-go/slack"

	"github.com/paidonce/paidonce/job"
)

// Workspace is where messages are posted.
type Workspace struct {
	BaseURL string // of the API; "": https://slack.com/api/
	Token   string // a bot's, such as xoxb-…
	// Client is for look-ups, which cost nothing and may be repeated. nil: job.Unguarded().
	Client *http.Client
}

// Message is one post.
type Message struct {
	// Channel is a channel's id, such as C0123456789, or its name, such as #support. The look-up of a name needs
	// channels:read too, and finds no person's.
	Channel string
	// Text is shown as it is: what Slack would take for a mention or a link's label is escaped.
	Text string
}

// Posted is the result of the step.
type Posted struct {
	Channel string `json:"channel"` // its id
	TS      string `json:"ts"`      // the message's name within it
}

// object is the post's name in one piece.
func (p Posted) object() string { return p.Channel + "/" + p.TS }

// Timeout is that of one attempt.
const Timeout = 30 * time.Second

// MaxRuns is how often a step is tried where nothing was sent or the answer was "not now": by the consumer's usual waits for
// half a day, so that an outage of Slack needs nobody's help.
const MaxRuns = 60

// EventType is the type of the metadata by which a post is found; its payload has the step's key and the attempt.
const EventType = "paidonce_step"

// Step makes a step that posts to w. write makes the message of a step's input, and must make the same of the same: it
// runs again when an attempt failed, and for look-ups. Its errors have the classes that those of handlers have.
//
// An unknown outcome is looked up, and held where that cannot tell. The step may be changed before it is registered:
// OnUnknown, Reconcile, Retry, Timeout, MaxRuns.
func Step[In job.Keyed](name string, w Workspace, write func(In) (Message, error)) job.Step[In, Posted] {
	return job.Step[In, Posted]{
		Name: name, Provider: "slack", Timeout: Timeout, MaxRuns: MaxRuns,
		Do: func(ctx context.Context, a *job.Attempt, in In) (Posted, error) {
			m, err := write(in)
			if err != nil {
				return Posted{}, err
			}
			return w.post(ctx, a, m)
		},
		Reconcile: func(ctx context.Context, o job.Open, in In) (Posted, job.Finding, error) {
			m, err := write(in)
			if err != nil {
				return Posted{}, job.CannotTell, err
			}
			return w.find(ctx, o, m.Channel)
		},
	}
}

func (w Workspace) client(c *http.Client) *api.Client {
	base := cmp.Or(w.BaseURL, api.APIURL)
	return api.New(w.Token, api.OptionHTTPClient(c), api.OptionAPIURL(strings.TrimSuffix(base, "/")+"/"))
}

// Check asks Slack who the token is. Its error says why nothing could be posted now.
func (w Workspace) Check(ctx context.Context) error {
	_, err := w.client(cmp.Or(w.Client, job.Unguarded())).AuthTestContext(ctx)
	return err
}

// post makes the one request of an attempt.
func (w Workspace) post(ctx context.Context, a *job.Attempt, m Message) (Posted, error) {
	if m.Channel == "" || m.Text == "" {
		return Posted{}, job.Failf("PO610 the message cannot be posted: it has no channel or no text")
	}
	channel, ts, err := w.client(a.Effect()).PostMessageContext(ctx, m.Channel, api.MsgOptionText(m.Text, true),
		api.MsgOptionMetadata(api.SlackMetadata{EventType: EventType, EventPayload: map[string]any{"key": a.Key().Text, "attempt": a.ID()}}))
	if err := judge(channel, ts, err); err != nil {
		return Posted{}, err
	}
	p := Posted{Channel: channel, TS: ts}
	a.Object(p.object())
	return p, nil
}
