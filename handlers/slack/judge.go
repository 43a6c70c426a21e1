package slack

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	api "github.com/slack-go/slack"

	"github.com/paidonce/paidonce/job"
)

// Slack's own words for why it did not post. What neither list has is no proof that nothing was posted: above all fatal_error and internal_error, of
// which Slack says that a part may have been done.
var (
	refusals = []string{
		"accesslimited", "access_denied", "account_inactive", "as_user_not_supported", "attachment_payload_limit_exceeded", "blocks_too_long", "cannot_reply_to_message",
		"channel_is_archived", "channel_not_found", "channel_type_not_supported", "deprecated_endpoint", "duplicate_channel_not_found", "duplicate_message_not_found", "ekm_access_denied", "enterprise_is_restricted",
		"external_channel_migrating", "invalid_arg_name", "invalid_arguments", "invalid_array_arg", "invalid_attachments", "invalid_auth", "invalid_blocks", "invalid_blocks_format", "invalid_charset", "invalid_form_data",
		"invalid_metadata_format", "invalid_metadata_schema", "invalid_post_type", "is_archived", "is_inactive", "markdown_text_conflict", "messages_tab_disabled", "metadata_must_be_sent_from_app", "metadata_too_large",
		"method_deprecated", "method_not_supported_for_channel_type", "missing_file_data", "missing_post_type", "missing_scope", "msg_blocks_too_long", "msg_too_long", "no_permission", "no_text", "not_allowed_token_type",
		"not_authed", "not_in_channel", "org_login_required", "restricted_action", "restricted_action_non_threadable_channel", "restricted_action_read_only_channel", "restricted_action_thread_locked",
		"restricted_action_thread_only_channel", "slack_connect_blocked_file_type", "slack_connect_canvas_sharing_blocked", "slack_connect_clip_sharing_blocked", "slack_connect_file_link_sharing_blocked",
		"slack_connect_lists_sharing_blocked", "team_access_not_granted", "team_not_found", "thread_locked", "token_expired", "token_revoked", "too_many_attachments", "too_many_contact_cards", "two_factor_setup_required", "unknown_method",
	}
	waits = []string{"ratelimited", "rate_limited", "message_limit_exceeded", "request_timeout", "team_added_to_org"} // request_timeout: the request came incomplete
)

const (
	usualWait   = 30 * time.Second // where Slack does not say how long
	longestWait = time.Hour
)

// judge says what became of a post by what Slack answered; nil: it is there.
func judge(channel, ts string, err error) error {
	limited, slow := errors.AsType[*api.RateLimitedError](err)
	status, bad := errors.AsType[api.StatusCodeError](err)
	said, no := errors.AsType[api.SlackErrorResponse](err)
	switch {
	case slow:
		return job.RetryIn(min(max(limited.RetryAfter, 0), longestWait), fmt.Errorf("PO607 Slack refused for now: %w", err))
	case bad:
		return judgeStatus(status.Code, "")
	case no && slices.Contains(waits, said.Err):
		return job.RetryIn(usualWait, fmt.Errorf("PO607 Slack refused for now: %.100q", said.Err))
	case no && slices.Contains(refusals, said.Err):
		return job.Failf("PO607 Slack refused: %s%s", said.Err, needed(said))
	case err != nil:
		return job.Unsure(fmt.Errorf("PO608 it is unknown whether Slack posted: %w", err))
	case ts == "" || channel == "": // slack-go has no error for an answer that says neither yes nor no
		return job.Unsure(errors.New("PO608 it is unknown whether Slack posted: its answer names no message"))
	}
	return nil
}

// judgeStatus says what an answer means that is not Slack's own form; text is its beginning.
func judgeStatus(status int, text string) error {
	err := fmt.Errorf("status %d %.100q", status, text)
	switch {
	case status == http.StatusTooManyRequests:
		return job.RetryIn(usualWait, fmt.Errorf("PO607 Slack refused for now: %w", err))
	case status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != 499:
		return job.Fail(fmt.Errorf("PO607 Slack refused: %w", err))
	}
	return job.Unsure(fmt.Errorf("PO608 it is unknown whether Slack posted: %w", err))
}

// needed names the scope that is missing.
func needed(r api.SlackErrorResponse) string {
	if r.Needed == "" {
		return ""
	}
	return fmt.Sprintf(" (the token needs %.100q)", r.Needed)
}
