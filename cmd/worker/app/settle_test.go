package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// message is an answer of Anthropic's, as its API has it.
const message = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"Charged twice."}],
"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100,"service_tier":"standard"}}`

// An answer that another program has is given to its attempt as the provider made it: the job is done with what its
// route makes of it, the cost is booked, and nothing is sent again.
func TestSettle(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.unknown()
	settle := func(n string, more ...string) []string {
		return append([]string{"jobs", "settle", ticketKey, "--attempt", n, "--body", "-"}, more...)
	}
	for body, want := range map[string]string{
		"not JSON": "it is no JSON object",
		"[1]":      "it is no JSON object",
		"{}":       "neither an id nor a usage",
		`{"summary":"as a person would write it"}`:                                       "neither an id nor a usage",
		`{"type":"error","error":{"type":"overloaded_error"},"request_id":"req_1"}`:      "it says that there is no answer",
		`{"id":"resp_1","object":"response","status":"failed"}`:                          "it says that there is no answer",
		`{"id":"resp_1","object":"response","status":"cancelled"}`:                       "it says that there is no answer",
		`{"id":"resp_1","object":"response","status":"queued"}`:                          "its status is queued",
		`{"id":"chatcmpl-1","object":"chat.completion","metadata":{"attempt":"theirs"}}`: `its metadata name the attempt "theirs"`,
	} {
		w.refused(exitUsage, body, settle("1"), "PO507", want)
	}
	for _, n := range []string{"0", "2", "", "01", "theirs"} {
		w.refused(exitFindings, message, settle(n), "PO501", fmt.Sprintf("no attempt %q", n))
	}
	w.refused(exitUsage, message, []string{"jobs", "settle", ticketKey, "--attempt", "1", "--body", "nowhere.json"}, "PO507", "nowhere.json")
	if s := w.state(ticketKey); s != "unknown" {
		t.Fatalf("refused answers made the job %s", s)
	}
	var before jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &before); err != nil {
		t.Fatal(err)
	}
	out := w.must(message, settle(before.Attempts[0].ClientRequestID, "--reason", "from the gateway's log")...)
	for _, want := range []string{"Attempt 1 (call summarise, anthropic/claude-haiku-4-5", "is received now", "does not send the call again"} {
		if !strings.Contains(out, want) {
			t.Errorf("settle does not say %q:\n%s", want, out)
		}
	}
	shown := w.finishes(ms, 1)
	for _, want := range []string{`{"summary":"Charged twice."}`, "ann@", "from the gateway's log", "msg_1", "0.0015"} {
		if !strings.Contains(shown, want) {
			t.Errorf("jobs show does not say %q:\n%s", want, shown)
		}
	}
	if got := w.must("", "jobs", "show", ticketKey, "--answer", "1"); got != message {
		t.Errorf("the captured answer is shown as %q", got)
	}
	w.refused(exitFailed, message, settle("1"), "PO503", "it has its answer")
}

// The provider named its answer before it was lost: another one's is refused. One that comes too late is kept, and its
// cost wasted.
func TestSettleLate(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	key := ledger.Key{Tenant: "acme", Text: ticketKey}
	lease := w.claimed(key)
	a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "summarise"}, Provider: "anthropic", Model: "a model without a price", Timeout: 1e9}
	if err := w.ledger.Send(t.Context(), lease, a); err != nil {
		t.Fatal(err)
	}
	id := ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}
	if _, err := w.ledger.Settle(t.Context(), id, ledger.Evidence{State: ledger.Sent, ObjectID: "msg_1", By: ledger.BySender, Who: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledger.Release(t.Context(), lease, ledger.Outcome{Error: ledger.JobError{Class: "held"}}); err != nil {
		t.Fatal(err)
	}
	w.must("", "jobs", "cancel", ticketKey, "--reason", "not needed")
	settle := []string{"jobs", "settle", ticketKey, "--attempt", "1", "--body", "-"}
	w.refused(exitUsage, strings.Replace(message, "msg_1", "msg_2", 1), settle, "PO507", `"msg_2"`, `"msg_1"`)
	w.refused(exitFindings, message, []string{"jobs", "settle", ticketKey, "--attempt", "", "--body", "-"}, "PO501") // it has no client request id
	out := w.must(strings.Replace(message, "claude-haiku-4-5", "a model without a price", 1), settle...)
	if !strings.Contains(out, "What it cost is not known: PO067") || !strings.Contains(out, "The job is cancelled") {
		t.Errorf("settle says\n%s", out)
	}
	var shown jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	if a := shown.Attempts[0]; shown.State != ledger.Cancelled || a.State != ledger.Received || a.ObjectID != "msg_1" || shown.CostUSD != nil || *a.TokensOut != 100 {
		t.Errorf("the job is %+v", shown)
	}
}
