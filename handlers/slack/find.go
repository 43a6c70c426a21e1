package slack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	api "github.com/slack-go/slack"

	"github.com/paidonce/paidonce/job"
)

const (
	skew     = 15 * time.Minute    // how far Slack's clock may be from the ledger's
	landed   = time.Hour           // after its sending no post turns up any more
	visible  = 80 * 24 * time.Hour // free workspaces hide what is older than 90 days
	pageSize = 200
)

// find looks for the post of an attempt in the history of its channel. It is not there only if the whole time in question was
// read and none of the posts is one of the step's key.
func (w Workspace) find(ctx context.Context, o job.Open, channel string) (Posted, job.Finding, error) {
	if time.Since(o.SentAt) > visible {
		return Posted{}, job.CannotTell, nil
	}
	c := w.client(cmp.Or(w.Client, job.Unguarded()))
	id, sure, err := channelID(ctx, c, channel, o.SentAt)
	if err != nil || id == "" {
		return Posted{}, job.CannotTell, err
	}
	p := api.GetConversationHistoryParameters{ChannelID: id, Oldest: stamp(o.SentAt.Add(-skew)), Inclusive: true, Limit: pageSize, IncludeAllMetadata: true}
	if latest := o.SentAt.Add(landed); latest.Before(time.Now()) {
		p.Latest = stamp(latest)
	}
	other := ""
	for {
		page, err := c.GetConversationHistoryContext(ctx, &p)
		if err == nil {
			err = whole(page)
		}
		if err != nil {
			return Posted{}, job.CannotTell, fmt.Errorf("PO609 Slack's history of %s does not say whether step %s was posted: %w", id, o.Key.Text, err)
		}
		for _, m := range page.Messages {
			switch {
			case m.Metadata.EventType != EventType:
			case m.Metadata.EventPayload["attempt"] == o.ClientRequestID: // whatever Slack made of the key's letters
				found := Posted{Channel: id, TS: m.Timestamp}
				o.Object(found.object())
				return found, job.Happened, nil
			case m.Metadata.EventPayload["key"] == o.Key.Text:
				other = m.Timestamp
			}
		}
		if !page.HasMore {
			break
		}
		p.Cursor = page.ResponseMetaData.NextCursor
	}
	if other != "" { // by a generation before, or an attempt that was taken for lost
		return Posted{}, job.CannotTell, fmt.Errorf("PO609 Slack's history of %s has post %s of another attempt of step %s: look whether that is the one", id, other, o.Key.Text)
	}
	if !sure {
		return Posted{}, job.CannotTell, fmt.Errorf("PO609 channel %q may have been another one when step %s was posted, and the post is not in the one of that name now", channel, o.Key.Text)
	}
	return Posted{}, job.Absent, nil
}

// whole says why a page is none that could prove that something is not there.
func whole(page *api.GetConversationHistoryResponse) error {
	switch {
	case !page.Ok || page.Messages == nil:
		return errors.New("the answer has no list of messages")
	case page.HasMore && page.ResponseMetaData.NextCursor == "":
		return errors.New("it breaks off")
	}
	return nil
}

// stamp is a time as Slack writes it.
func stamp(t time.Time) string { return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000) }

var idForm = regexp.MustCompile(`^[CGD][A-Z0-9]{7,}$`)

// channelID finds the id of a channel by its name; "": there is none. sure: it had that name at that time already. Names can be
// given to other channels.
func channelID(ctx context.Context, c *api.Client, channel string, at time.Time) (id string, sure bool, err error) {
	if idForm.MatchString(channel) {
		return channel, true, nil
	}
	name := strings.TrimPrefix(channel, "#")
	p := api.GetConversationsParameters{Limit: pageSize, Types: []string{"public_channel", "private_channel"}}
	for {
		all, next, err := c.GetConversationsContext(ctx, &p)
		if err != nil {
			return "", false, fmt.Errorf("PO609 Slack does not say which channel %q is: %w", channel, err)
		}
		for _, one := range all {
			if one.Name == name {
				return one.ID, one.Created.Time().Before(at.Add(-skew)) && len(one.PreviousNames) == 0, nil
			}
		}
		if next == "" {
			return "", false, nil
		}
		p.Cursor = next
	}
}
