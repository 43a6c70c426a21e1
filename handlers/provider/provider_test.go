package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/job"
)

// A gateway may ignore the filter of a listing: somebody else's answer is no evidence.
func TestStoredChecksTheAttempt(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"list","has_more":false,"data":[{"id":"chatcmpl-1","metadata":{"attempt":"theirs"}},{"id":"chatcmpl-2","metadata":{"attempt":"ours"}}]}`)
	}))
	defer srv.Close()
	s := Settings{OpenAI: Account{BaseURL: srv.URL, APIKey: "k"}, Routes: []Route{
		{Name: "a", Provider: OpenAI, Model: "m", Timeout: time.Second}, {Name: "b", Provider: Anthropic, Model: "m", Timeout: time.Second},
		{Name: "t", Provider: OpenAI, Model: "m", Timeout: time.Second, TrustAbsence: true}}}
	for _, c := range []struct {
		route, attempt, id string
		finding            job.Finding
		asked              int
	}{
		{"a", "ours", "chatcmpl-2", job.Happened, 1},
		{"a", "nobody's", "", job.CannotTell, 1},
		{"t", "ours", "chatcmpl-2", job.Happened, 1},
		{"t", "nobody's", "", job.Absent, 1},
		{"b", "ours", "", job.CannotTell, 0}, // there is nobody to ask
		{"gone", "ours", "", job.CannotTell, 0},
	} {
		asked = 0
		got, finding, err := Stored(t.Context(), s, job.Open{Route: c.route, ClientRequestID: c.attempt})
		if err != nil || finding != c.finding || asked != c.asked || (got == nil) != (c.id == "") || got != nil && got.ID != c.id {
			t.Errorf("route %s, attempt %s: %v, %s, %v, asked %d times; want %q, %s, asked %d times", c.route, c.attempt, got, finding, err, asked, c.id, c.finding, c.asked)
		}
	}
	srv.Close()
	for _, route := range []string{"a", "t"} {
		if _, finding, err := Stored(t.Context(), s, job.Open{Route: route}); err == nil || finding != job.CannotTell {
			t.Errorf("a provider that does not answer, by route %s: %s, %v", route, finding, err)
		}
	}
}

// Answers that are no answers are permanent failures with a reason.
func TestTexts(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"c","choices":[{"finish_reason":"stop","message":{"content":"hello"}}]}`:          "hello",
		`{"id":"c","choices":[{"finish_reason":"length","message":{"content":"hel"}}]}`:          "PO350",
		`{"id":"c","choices":[{"finish_reason":"content_filter","message":{"content":""}}]}`:     "PO350",
		`{"id":"c","choices":[{"finish_reason":"stop","message":{"refusal":"I would rather"}}]}`: "PO351",
		`{"id":"c","choices":[]}`: "PO350",
	} {
		var c openai.ChatCompletion
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatal(err)
		}
		text, err := OpenAIText(&c)
		check(t, body, text, err, want)
	}
	for body, want := range map[string]string{
		`{"id":"m","stop_reason":"end_turn","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}`:             "hello",
		`{"id":"m","stop_reason":"end_turn","content":[{"type":"thinking","thinking":"well"},{"type":"text","text":"hello"}]}`: "hello",
		`{"id":"m","stop_reason":"max_tokens","content":[{"type":"text","text":"hel"}]}`:                                       "PO350",
		`{"id":"m","stop_reason":"refusal","content":[]}`:                                                                      "PO351",
	} {
		var m anthropic.Message
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		text, err := AnthropicText(&m)
		check(t, body, text, err, want)
	}
}

func check(t *testing.T, body, text string, err error, want string) {
	t.Helper()
	if !strings.HasPrefix(want, "PO") {
		if err != nil || text != want {
			t.Errorf("%s reads as %q, %v; want %q", body, text, err, want)
		}
		return
	}
	if class, _ := job.ClassOf(err); err == nil || class != job.Permanent || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%s reads as %q, %v; want a permanent %s", body, text, err, want)
	}
}
