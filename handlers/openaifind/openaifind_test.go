package openaifind_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/job"
)

// reply is what a server says to one path.
type reply struct {
	status int
	body   string
}

// serve answers each path, query included, by its reply, and anything else by a failure of the test.
func serve(t *testing.T, replies map[string]reply) *openai.Client {
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
	c := openai.NewClient(option.WithBaseURL(srv.URL+"/"), option.WithAPIKey("k"), option.WithMaxRetries(0))
	return &c
}

// What a server says of a response is believed as far as it goes.
func TestResponse(t *testing.T) {
	none := func(*responses.Response) (string, error) { return "text", nil }
	for name, c := range map[string]struct {
		id    string
		reply reply
		want  job.Finding
		fails bool
	}{
		"no id":            {"", reply{}, job.CannotTell, false},
		"completed":        {"resp_1", reply{200, `{"id":"resp_1","status":"completed"}`}, job.Happened, false},
		"incomplete":       {"resp_1", reply{200, `{"id":"resp_1","status":"incomplete"}`}, job.Happened, false},
		"queued":           {"resp_1", reply{200, `{"id":"resp_1","status":"queued"}`}, job.StillRunning, false},
		"in progress":      {"resp_1", reply{200, `{"id":"resp_1","status":"in_progress"}`}, job.StillRunning, false},
		"failed":           {"resp_1", reply{200, `{"id":"resp_1","status":"failed"}`}, job.Failed, false},
		"cancelled":        {"resp_1", reply{200, `{"id":"resp_1","status":"cancelled"}`}, job.Failed, false},
		"a new status":     {"resp_1", reply{200, `{"id":"resp_1","status":"paused"}`}, job.CannotTell, true},
		"no status":        {"resp_1", reply{200, `{"id":"resp_1"}`}, job.CannotTell, true},
		"another response": {"resp_1", reply{200, `{"id":"resp_2","status":"completed"}`}, job.CannotTell, true},
		"another failed":   {"resp_1", reply{200, `{"id":"resp_2","status":"failed"}`}, job.CannotTell, true},
		"a page":           {"resp_1", reply{200, `<html>`}, job.CannotTell, true},
		"not found":        {"resp_1", reply{404, `{"error":{"message":"no"}}`}, job.CannotTell, false},
		"no key":           {"resp_1", reply{401, `{"error":{"message":"no"}}`}, job.CannotTell, true},
		"broken":           {"resp_1", reply{500, `{}`}, job.CannotTell, true},
	} {
		find := openaifind.Reconcile(serve(t, map[string]reply{"/responses/resp_1": c.reply}), openaifind.Response, none)
		out, got, err := find(t.Context(), job.Open{ObjectID: c.id})
		if got != c.want || (err != nil) != c.fails || (out == "text") != (got == job.Happened) {
			t.Errorf("%s: %q, %s, %v; want %s", name, out, got, err, c.want)
		}
	}
}

// A completion is one's own or none, and none proves nothing.
func TestCompletion(t *testing.T) {
	for name, c := range map[string]struct {
		reply reply
		want  job.Finding
		fails bool
	}{
		"ours":           {reply{200, `{"data":[{"id":"c1","metadata":{"attempt":"theirs"}},{"id":"c2","metadata":{"attempt":"ours"}}]}`}, job.Happened, false},
		"theirs":         {reply{200, `{"data":[{"id":"c1","metadata":{"attempt":"theirs"}},{"id":"c3"}]}`}, job.CannotTell, false},
		"nothing":        {reply{200, `{"data":[]}`}, job.CannotTell, false},
		"not to be read": {reply{403, `{}`}, job.CannotTell, true},
	} {
		got, finding, err := openaifind.Completion(t.Context(), serve(t, map[string]reply{"/chat/completions?metadata%5Battempt%5D=ours": c.reply}), job.Open{ClientRequestID: "ours"})
		if finding != c.want || (err != nil) != c.fails || (got != nil) != (finding == job.Happened) || got != nil && got.ID != "c2" {
			t.Errorf("%s: %v, %s, %v; want %s", name, got, finding, err, c.want)
		}
	}
}

// A batch is absent when all that can be it were seen, and not before.
func TestBatchList(t *testing.T) {
	sent := time.Unix(1_800_000_000, 0)
	batch := func(id, attempt string, after time.Duration) string {
		return fmt.Sprintf(`{"id":%q,"object":"batch","created_at":%d,"metadata":{"attempt":%q}}`, id, sent.Add(after).Unix(), attempt)
	}
	page := func(more bool, batches string) reply {
		return reply{200, fmt.Sprintf(`{"object":"list","has_more":%t,"data":[%s]}`, more, batches)}
	}
	const first, second = "/batches?limit=100", "/batches?after=b2&limit=100"
	for name, c := range map[string]struct {
		replies map[string]reply
		want    job.Finding
		fails   bool
	}{
		"ours":                    {map[string]reply{first: page(true, batch("b1", "theirs", time.Hour)+","+batch("b2", "ours", -time.Minute))}, job.Happened, false},
		"ours, on another page":   {map[string]reply{first: page(true, batch("b1", "theirs", time.Hour)+","+batch("b2", "theirs", 0)), second: page(false, batch("b3", "ours", 0))}, job.Happened, false},
		"clocks differ":           {map[string]reply{first: page(true, batch("b1", "theirs", -5*time.Minute)+","+batch("b2", "ours", -6*time.Minute))}, job.Happened, false},
		"oldest first":            {map[string]reply{first: page(true, batch("b1", "theirs", -time.Hour)+","+batch("b2", "theirs", 0))}, job.CannotTell, true},
		"clocks differ, by pages": {map[string]reply{first: page(true, batch("b2", "theirs", -5*time.Minute)), second: page(false, batch("b3", "ours", -6*time.Minute))}, job.Happened, false},
		"none since":              {map[string]reply{first: page(true, batch("b1", "theirs", time.Hour)+","+batch("b2", "theirs", -time.Hour))}, job.Absent, false},
		"none at all":             {map[string]reply{first: page(false, "")}, job.Absent, false},
		"none on the last page":   {map[string]reply{first: page(true, batch("b2", "theirs", 0)), second: page(false, batch("b3", "theirs", 0))}, job.Absent, false},
		"the list breaks off":     {map[string]reply{first: page(true, batch("b2", "theirs", 0)), second: {500, `{}`}}, job.CannotTell, true},
		"the list has a hole":     {map[string]reply{first: page(true, batch("b2", "theirs", 0)), second: page(true, "")}, job.CannotTell, true},
		"a hole to begin with":    {map[string]reply{first: page(true, "")}, job.CannotTell, true},
		"something else":          {map[string]reply{first: {200, `{}`}}, job.CannotTell, true},
		"something else, inside":  {map[string]reply{first: page(true, batch("b2", "theirs", 0)), second: {200, `{"data":null}`}}, job.CannotTell, true},
		"no batches here":         {map[string]reply{first: {404, `{}`}}, job.CannotTell, true},
	} {
		got, finding, err := openaifind.Batch(t.Context(), serve(t, c.replies), job.Open{ClientRequestID: "ours", SentAt: sent})
		if finding != c.want || (err != nil) != c.fails || (got != nil) != (finding == job.Happened) {
			t.Errorf("%s: %v, %s, %v; want %s", name, got, finding, err, c.want)
		}
	}
	if _, finding, err := openaifind.Batch(t.Context(), serve(t, nil), job.Open{ClientRequestID: "ours"}); finding != job.CannotTell || err != nil {
		t.Errorf("without a time: %s, %v", finding, err)
	}
}
