package anthropicfind_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/paidonce/paidonce/handlers/anthropicfind"
	"github.com/paidonce/paidonce/job"
)

// reply is what a server says to one path.
type reply struct {
	status int
	body   string
}

func serve(t *testing.T, replies map[string]reply) *anthropic.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := replies[r.URL.RequestURI()]
		if !ok || r.Method != "GET" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	}))
	t.Cleanup(srv.Close)
	c := anthropic.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey("k"), option.WithMaxRetries(0))
	return &c
}

// A batch says whose it is when it has ended; until then whatever was created at the time may be the one.
func TestBatch(t *testing.T) {
	const ours = "8f6b2f4e-0f5f-4c0b-9a53-2f5f0d9b7c11"
	sent := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	batch := func(id, status string, after time.Duration) string {
		archived := "null"
		if status == "archived" {
			status, archived = "ended", `"2030-02-01T00:00:00Z"`
		}
		return fmt.Sprintf(`{"id":%q,"type":"message_batch","processing_status":%q,"created_at":%q,"archived_at":%s}`, id, status, sent.Add(after).Format(time.RFC3339), archived)
	}
	page := func(more bool, last, batches string) reply {
		return reply{200, fmt.Sprintf(`{"has_more":%t,"last_id":%q,"data":[%s]}`, more, last, batches)}
	}
	result := func(customID string) reply {
		return reply{200, fmt.Sprintf(`{"custom_id":%q,"result":{"type":"expired"}}`+"\n", customID)}
	}
	const first, second = "/v1/messages/batches?limit=1000", "/v1/messages/batches?after_id=b2&limit=1000"
	const of1, of2 = "/v1/messages/batches/b1/results", "/v1/messages/batches/b2/results"
	late, early := 2*time.Hour, -time.Hour
	for name, c := range map[string]struct {
		replies map[string]reply
		want    job.Finding
		fails   bool
	}{
		"ours":                    {map[string]reply{first: page(true, "b2", batch("b1", "ended", 0)+","+batch("b2", "ended", 0)), of1: result("theirs-1"), of2: result(ours + "-1")}, job.Happened, false},
		"ours, while others run":  {map[string]reply{first: page(false, "b2", batch("b1", "in_progress", 0)+","+batch("b2", "ended", 0)), of2: result(ours + "-1")}, job.Happened, false},
		"ours, on another page":   {map[string]reply{first: page(true, "b2", batch("b2", "ended", 0)), of2: result("theirs"), second: page(false, "b1", batch("b1", "ended", 0)), of1: result(ours + "-")}, job.Happened, false},
		"one runs":                {map[string]reply{first: page(false, "b2", batch("b1", "ended", 0)+","+batch("b2", "in_progress", 0)), of1: result("theirs")}, job.StillRunning, false},
		"one is being cancelled":  {map[string]reply{first: page(false, "b2", batch("b1", "archived", 0)+","+batch("b2", "canceling", 0)+","+batch("b3", "archived", 0))}, job.StillRunning, false},
		"clocks differ":           {map[string]reply{first: page(false, "b2", batch("b1", "ended", -5*time.Minute)+","+batch("b2", "in_progress", -6*time.Minute)), of1: result("theirs")}, job.StillRunning, false},
		"oldest first":            {map[string]reply{first: page(true, "b2", batch("b1", "ended", early)+","+batch("b2", "ended", 0))}, job.CannotTell, true},
		"clocks differ, by pages": {map[string]reply{first: page(true, "b2", batch("b2", "ended", -5*time.Minute)), of2: result("theirs"), second: page(false, "b1", batch("b1", "in_progress", -6*time.Minute))}, job.StillRunning, false},
		"one runs, of later":      {map[string]reply{first: page(false, "b2", batch("b1", "in_progress", late)+","+batch("b2", "ended", 0)), of2: result("theirs")}, job.Absent, false},
		"one runs, of before":     {map[string]reply{first: page(true, "b2", batch("b1", "ended", 0)+","+batch("b2", "in_progress", early)), of1: result("theirs")}, job.Absent, false},
		"none":                    {map[string]reply{first: page(false, "", "")}, job.Absent, false},
		"an id that begins alike": {map[string]reply{first: page(false, "b1", batch("b1", "ended", 0)), of1: result(ours)}, job.Absent, false},
		"one is archived":         {map[string]reply{first: page(false, "b2", batch("b1", "ended", 0)+","+batch("b2", "archived", 0)), of1: result("theirs")}, job.CannotTell, false},
		"one shows nothing":       {map[string]reply{first: page(false, "b1", batch("b1", "ended", 0)), of1: {200, ""}}, job.CannotTell, false},
		"one cannot be read":      {map[string]reply{first: page(false, "b1", batch("b1", "ended", 0)), of1: {500, `{}`}}, job.CannotTell, true},
		"the list breaks off":     {map[string]reply{first: page(true, "b2", batch("b2", "ended", 0)), of2: result("theirs"), second: {500, `{}`}}, job.CannotTell, true},
		"the list has a hole":     {map[string]reply{first: page(true, "", batch("b2", "ended", 0)), of2: result("theirs")}, job.CannotTell, true},
		"a hole to begin with":    {map[string]reply{first: page(true, "", "")}, job.CannotTell, true},
		"something else":          {map[string]reply{first: {200, `{}`}}, job.CannotTell, true},
		"no key":                  {map[string]reply{first: {401, `{}`}}, job.CannotTell, true},
	} {
		find := anthropicfind.Batch(serve(t, c.replies), func(b *anthropic.MessageBatch) (string, error) { return b.ID, nil })
		out, got, err := find(t.Context(), job.Open{ClientRequestID: ours, SentAt: sent})
		if got != c.want || (err != nil) != c.fails || (out != "") != (got == job.Happened) {
			t.Errorf("%s: %q, %s, %v; want %s", name, out, got, err, c.want)
		}
	}
	find := anthropicfind.Batch(serve(t, nil), func(*anthropic.MessageBatch) (string, error) { return "", errors.New("read") })
	if _, got, err := find(t.Context(), job.Open{ClientRequestID: ours}); got != job.CannotTell || err != nil {
		t.Errorf("without a time: %s, %v", got, err)
	}
}

// What is named so is named back.
func TestName(t *testing.T) {
	for id, want := range map[string]string{"8f6b2f4e-0f5f-4c0b-9a53-2f5f0d9b7c11-line_7": "line_7", "8f6b2f4e-0f5f-4c0b-9a53-2f5f0d9b7c11-": "", "theirs": "theirs"} {
		if got := anthropicfind.Name(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}
