package job

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// askBackground asks for a response in background mode, and for nothing else.
func askBackground(ctx context.Context, h *http.Client, url string) (s said, err error) {
	p := responseParams()
	p.Background = openai.Bool(true)
	c := gpt(h, url)
	r, err := c.Responses.New(ctx, p)
	if err != nil {
		return s, s.fault(err)
	}
	s.response(*r)
	return s, nil
}

// background makes one such call.
func background(t *testing.T, f *fake, ms *modelserver.Server, timeout time.Duration, change func(*RunConfig)) asked[said] {
	t.Helper()
	j := priced(t, f)
	if change != nil {
		change(&j.cfg)
	}
	return ask(t, j, "openai", timeout, func(ctx context.Context, a *Attempt) (said, error) { return askBackground(ctx, a.HTTP(), ms.URL()) })
}

// TestBackground: the route's client is given a response in background mode when it is over, as if it were any
// other: it is one request, it is on record with what it cost, and it is played back without asking anybody. How it
// ends decides as it does elsewhere. Its id is on record before that, whatever the ledger says first.
func TestBackground(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range []struct {
		fault modelserver.Fault
		want  verdict
	}{
		{modelserver.Fault{After: 600 * time.Millisecond, Lag: 1}, verdict{state: ledger.Received, class: "done"}},
		{modelserver.Fault{Ends: "incomplete"}, verdict{state: ledger.Received, class: "done"}},
		{modelserver.Fault{Ends: "failed"}, verdict{state: ledger.FailedAttempt, class: "provider_error", again: soon}},
		{modelserver.Fault{Ends: "cancelled"}, verdict{state: ledger.FailedAttempt, class: "provider_error", again: soon}},
	} {
		t.Run("ends "+c.fault.Ends, func(t *testing.T) {
			ms.ScriptAny(c.fault)
			before := ms.Requests()
			f := &fake{onSettle: func(n int, _ ledger.Evidence) error {
				if n <= c.fault.Lag { // it is slow, too
					return errStore
				}
				return nil
			}}
			got := background(t, f, ms, 30*time.Second, nil)
			check(t, f, got, c.want)
			line, e := ms.Bill()[before], f.one(t).evidence
			if n := ms.Requests() - before; n != 1 || e.ObjectID != line.ObjectID || e.ProviderRequestID != line.RequestID {
				t.Errorf("%d requests; on record %+v, on the bill %+v", n, e, line)
			}
			if first := f.settled()[c.fault.Lag]; first.State != ledger.Sent || first.Class != "background" || first.ObjectID != line.ObjectID || first.Response != nil {
				t.Errorf("while it ran there was on record %+v", first)
			}
			if want := fmt.Sprintf("%d computed", line.Price); c.fault.Ends != "cancelled" && cost(e) != want {
				t.Errorf("the cost on record is %s, want %s", cost(e), want)
			}
			if c.want.state != ledger.Received {
				return
			}
			if got.out.ID != line.ObjectID || got.out.Complete != (c.fault.Ends == "") || got.out.Text == "" {
				t.Errorf("the client was given %+v", got.out)
			}
			replay(t, f, client{provider: "openai", ask: askBackground}, got.out, "http://127.0.0.1:1")
		})
	}
}

// TestBackgroundLeft: the attempt's time, or the worker's, is over before the response is: unknown, with its id on record.
func TestBackgroundLeft(t *testing.T) {
	ms := model(t, modelserver.Options{})
	paid, drained := context.WithCancel(t.Context())
	defer drained()
	for class, change := range map[string]func(*RunConfig){
		"timeout":   func(*RunConfig) {},
		"cancelled": func(c *RunConfig) { c.Paid = paid },
	} {
		t.Run(class, func(t *testing.T) {
			ms.ScriptAny(modelserver.Fault{Hold: true})
			timeout := 400 * time.Millisecond
			f := &fake{}
			if class == "cancelled" {
				timeout = time.Minute
				f.onSettle = func(_ int, e ledger.Evidence) error {
					if e.Class == "background" {
						time.AfterFunc(100*time.Millisecond, drained)
					}
					return nil
				}
			}
			before := ms.Requests()
			got := background(t, f, ms, timeout, change)
			check(t, f, got, verdict{state: ledger.Sent, class: class})
			if n := ms.Requests() - before; n != 1 || f.one(t).evidence.ObjectID != ms.Bill()[before].ObjectID {
				t.Errorf("%d requests; on record %+v", n, f.one(t).evidence)
			}
		})
	}
}

// TestPolls: what a poll says beside the end of the response is no evidence. Polls carry the credentials of the
// create request, and nothing that could make another.
func TestPolls(t *testing.T) {
	const queued, over = `{"id":"resp_1","object":"response","status":"queued","output":[]}`, `{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":5,"output_tokens":6}}`
	polls := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { http.Error(w, `{"error":{"message":"no such response"}}`, 404) },
		func(w http.ResponseWriter) {
			http.Error(w, `{"error":{"message":"broken","type":"server_error"}}`, 500)
		},
		func(w http.ResponseWriter) { w.WriteHeader(503); io.WriteString(w, over) },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		func(w http.ResponseWriter) { io.WriteString(w, strings.Replace(over, "resp_1", "resp_2", 1)) },
		func(w http.ResponseWriter) { io.WriteString(w, strings.Replace(over, "completed", "paused", 1)) },
		func(w http.ResponseWriter) { io.WriteString(w, over[:40]) },
		func(w http.ResponseWriter) { w.WriteHeader(204) },
		func(w http.ResponseWriter) { io.WriteString(w, over) },
	}
	var creates, n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == "POST" {
			creates.Add(1)
			io.WriteString(w, queued)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method != "GET" || r.URL.String() != "/v1/responses/resp_1?api-version=7" || r.Header.Get("Authorization") != "Bearer k" || len(body) > 0 ||
			r.Header.Get("Content-Type") != "" || r.Header.Get("X-Client-Request-Id") != "" || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("a poll is %s %s with %v and %q", r.Method, r.URL, r.Header, body)
		}
		polls[n.Add(1)-1](w)
	}))
	defer srv.Close()
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/responses?api-version=7", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		for k, v := range map[string]string{"Authorization": "Bearer k", "Content-Type": "application/json", "Idempotency-Key": "i", "X-Client-Request-Id": "c"} {
			req.Header.Set(k, v)
		}
		resp, err := a.HTTP().Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	})
	check(t, f, got, verdict{state: ledger.Received, class: "done"})
	if e := f.one(t).evidence; got.out != over || num(e.Usage.Out) != 6 || creates.Load() != 1 || int(n.Load()) != len(polls) {
		t.Errorf("the client was given %q after %d creates and %d polls; on record %+v", got.out, creates.Load(), n.Load(), e)
	}
}

// TestNoPoll: a response that cannot be asked for is unknown, and asks nobody for anything else.
func TestNoPoll(t *testing.T) {
	for _, id := range []string{"", "../files/f", "resp_1?x=", "resp_1/cancel", "%2e%2e"} {
		requests := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":%q,"object":"response","status":"in_progress"}`, id)
		}))
		f := &fake{}
		got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			return post(ctx, a.HTTP(), srv.URL, "{}")
		})
		srv.Close()
		check(t, f, got, verdict{state: ledger.Sent, class: "broken"})
		if requests != 1 {
			t.Errorf("id %q: %d requests", id, requests)
		}
	}
}

// TestFoundObject: an object that a reconciler found and could not read is played to the route, whose error is about
// the same text, and is not given to one that reads a stream, which would see nothing and a clean end.
func TestFoundObject(t *testing.T) {
	const object = `{"id":"resp_1","object":"response","status":"incomplete"}`
	for body, want := range map[string]string{`{}`: object, `{"stream":false}`: object, `{"stream":true}`: "PO363"} {
		f := &fake{attempts: []*fakeAttempt{{state: ledger.Received, Attempt: ledger.Attempt{Call: ledger.CallRef{Name: "ask"}, Route: "only"},
			evidence: ledger.Evidence{Response: &ledger.Response{Codec: codecObject, Body: []byte(object)}}}}}
		got := ask(t, testRun(t, f, nil), "openai", time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			return post(ctx, a.HTTP(), "http://127.0.0.1:1", body)
		})
		if !strings.HasPrefix(got.out, want) && !strings.Contains(got.out+fmt.Sprint(got.err), want) || f.sends != 0 {
			t.Errorf("asked with %s it was given %q, %v, and the gate asked %d times; want %s", body, got.out, got.err, f.sends, want)
		}
	}
}

// TestFind: what Reconcile returns becomes what can be settled.
func TestFind(t *testing.T) {
	const object = `{"id":"resp_1","model":"m","status":"incomplete","usage":{"input_tokens":5,"output_tokens":6}}`
	unread := fmt.Errorf("it does not read")
	for name, c := range map[string]struct {
		finding  Finding
		object   string
		err      error
		want     Finding
		response *ledger.Response
		booked   bool
		fails    bool
	}{
		"read":            {Happened, object, nil, Happened, &ledger.Response{Codec: "json", Body: []byte(`"text"`)}, true, false},
		"read, no object": {Happened, "", nil, Happened, &ledger.Response{Codec: "json", Body: []byte(`"text"`)}, false, false},
		"not read":        {Happened, object, unread, Happened, &ledger.Response{Codec: "object", Body: []byte(object)}, true, false},
		"nothing to keep": {Happened, "", unread, Happened, nil, false, true},
		"no JSON":         {Happened, "<html>", unread, Happened, nil, false, true},
		"failed":          {Failed, object, nil, Failed, nil, true, false},
		"failed, unsure":  {Failed, object, unread, Failed, nil, false, true},
		"running":         {StillRunning, object, nil, StillRunning, nil, false, false},
		"absent":          {Absent, "", nil, Absent, nil, false, false},
		"cannot tell":     {CannotTell, "", unread, CannotTell, nil, false, true},
	} {
		call := Call[string, string]{Name: "ask", Reconcile: func(_ context.Context, o Open) (string, Finding, error) {
			if c.object != "" {
				o.Answered([]byte(c.object))
			}
			return "text", c.finding, c.err
		}}
		got, err := call.info().Reconcile(t.Context(), Open{})
		if got.Finding != c.want || (err != nil) != c.fails || fmt.Sprint(got.Response) != fmt.Sprint(c.response) ||
			(got.ObjectID == "resp_1") != c.booked || (num(got.Usage.Out) == 6) != c.booked {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestAnswerOf: a provider's object becomes an answer with its id and its usage, or is refused with a reason.
func TestAnswerOf(t *testing.T) {
	const chat = `{"id":"chatcmpl-1","model":"m","choices":[],"error":null,"usage":{"prompt_tokens":5,"completion_tokens":6}}`
	for object, want := range map[string]string{
		chat: "", `{"usage":{"inputTokens":5,"outputTokens":6}}`: "", // Bedrock's have no id
		`null`: "no JSON object", `{"id":"resp_1"} {}`: "no JSON object", `{"id":"resp_1","object":"response","status":"in_progress"}`: "not over",
		`{"id":"x","error":{"message":"no"}}`: "no answer", `{"model":"m"}`: "neither",
	} {
		got, err := AnswerOf([]byte(object))
		if (err == nil) != (want == "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", object, err, want)
		}
		if err == nil && (got.Finding != Happened || got.Response.Codec != codecObject || string(got.Response.Body) != object || num(got.Usage.Out) != 6 ||
			got.Call.Usage.In != 5 || (got.ObjectID == "chatcmpl-1") != (object == chat)) {
			t.Errorf("%s: %+v", object, got)
		}
	}
}
