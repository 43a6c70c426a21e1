package modelserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// post sends a body as it is and returns the answer and its text.
func post(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func getJSON(t *testing.T, url string, v any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// The first event of a stream, and the id in it, is there while the rest is held:
// this is when a worker is killed who knows what it paid for.
func TestHoldInMidStream(t *testing.T) {
	for _, c := range clients {
		if !c.stream {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ms := start(t, modelserver.Options{})
			ms.Script("acme:summarize:1", modelserver.Fault{Hold: true, Events: 2})
			answered := make(chan got, 1)
			go func() { answered <- c.ask(t.Context(), ms.URL(), noRetries()) }()
			wait(t, ms, func(l modelserver.Line) bool { return l.N == 1 })
			ms.Release("acme:summarize:1")
			if g := <-answered; !whole(c, g) {
				t.Errorf("client got %+v", g)
			}
		})
	}
	ms := start(t, modelserver.Options{})
	ms.ScriptAny(modelserver.Fault{Hold: true, Events: 1})
	front := httptest.NewServer(ms.Handler()) // whose connections Close does not end
	defer front.Close()
	resp, err := http.Post(front.URL+modelserver.Responses, "application/json",
		strings.NewReader(`{"model":"m","stream":true,"input":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 1<<16)
	n, err := resp.Body.Read(first)
	if id := ms.Bill()[0].ObjectID; err != nil || !strings.Contains(string(first[:n]), id) || strings.Contains(string(first[:n]), "delta") {
		t.Errorf("first event %q, %v", first[:n], err)
	}
	if err := ms.Close(); err != nil { // with the answer still held
		t.Error(err)
	}
	if l := ms.Bill()[0]; l.Delivered {
		t.Errorf("line %+v", l)
	}
}

// Who leaves before the model starts pays nothing.
func TestLeaveBeforeGeneration(t *testing.T) {
	ms := start(t, modelserver.Options{})
	ms.ScriptAny(modelserver.Fault{Before: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan got, 1)
	go func() { answered <- askChat(ctx, ms.URL(), noRetries()) }()
	eventually(t, func() bool { return ms.Requests() == 1 })
	leave()
	if g := <-answered; !errors.Is(g.err, context.Canceled) {
		t.Errorf("client got %+v", g)
	}
	if err := ms.Close(); err != nil {
		t.Error(err)
	}
	if ms.Requests() != 1 || len(ms.Bill()) != 0 {
		t.Errorf("%d requests, bill %+v", ms.Requests(), ms.Bill())
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}

// The key of a line is the prompt's marker, else the metadata's, else the client's
// id; all three are on the line.
func TestKeyOf(t *testing.T) {
	ms := start(t, modelserver.Options{})
	chat := `{"model":"m","metadata":{"job_key":"M"},"messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}]}`
	for _, c := range []struct{ route, body, client, want string }{
		{modelserver.ChatCompletions, fmt.Sprintf(chat, "[key:P] hello"), "C", "P"},
		{modelserver.ChatCompletions, fmt.Sprintf(chat, "hello"), "C", "M"},
		{modelserver.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, "C", "C"},
		{modelserver.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, "", ""},
		{modelserver.Responses, `{"model":"m","instructions":"[key:I]","input":[{"role":"user","content":"hello"}]}`, "C", "I"},
		{modelserver.Messages, `{"model":"m","system":"[key:S]","messages":[{"role":"user","content":"hello"}]}`, "C", "S"},
		{modelserver.Messages, `{"model":"m","metadata":{"user_id":"U"},"messages":[{"role":"user","content":"hello"}]}`, "C", "U"},
	} {
		resp, text := post(t, ms.URL()+c.route, c.body, "X-Client-Request-Id", c.client)
		bill := ms.Bill()
		if l := bill[len(bill)-1]; resp.StatusCode != 200 || l.Key != c.want || l.ClientID != c.client {
			t.Errorf("want key %q: %d %s, line %+v", c.want, resp.StatusCode, text, l)
		}
	}
	if l := ms.Bill()[0]; l.PromptKey != "P" || l.MetadataKey != "M" {
		t.Errorf("line %+v", l)
	}

	own := start(t, modelserver.Options{
		KeyOf:    func(r modelserver.Request) string { return r.Provider + "/" + r.Model },
		Generate: func(r modelserver.Request) string { return "<" + r.Prompt + ">" },
	})
	_, text := post(t, own.URL()+modelserver.Messages, `{"model":"m","system":"a","messages":[{"role":"user","content":"b"}]}`)
	if len(own.BillByKey()["anthropic/m"]) != 1 || !strings.Contains(text, `\u003ca\nb\u003e`) {
		t.Errorf("%s, bill %+v", text, own.Bill())
	}
}

// A request that asks for a schema gets JSON of that schema.
func TestSchema(t *testing.T) {
	ms := start(t, modelserver.Options{})
	schema := `{"type":"object","properties":{"no":{"type":"string"},"total":{"type":["integer","null"]},"lines":{"type":"array"},"currency":{"enum":["EUR","USD"]},"paid":{"type":"boolean"}}}`
	want := `{"currency":"EUR","lines":[],"no":"","paid":false,"total":0}`
	for route, body := range map[string]string{
		modelserver.ChatCompletions: `"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"i","schema":` + schema + `}}`,
		modelserver.Responses:       `"input":"x","text":{"format":{"type":"json_schema","name":"i","schema":` + schema + `}}`,
		modelserver.Messages:        `"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}`,
	} {
		_, text := post(t, ms.URL()+route, `{"model":"m",`+body+`}`)
		quoted, _ := json.Marshal(want)
		if !strings.Contains(text, string(quoted)) {
			t.Errorf("%s: %s", route, text)
		}
	}
}

// What no model can answer is refused and costs nothing.
func TestInvalidRequests(t *testing.T) {
	ms := start(t, modelserver.Options{})
	for _, body := range []string{``, `{`, `[]`, `{"messages":[{"role":"user","content":"x"}]}`, `{"model":"m"}`} {
		for _, route := range []string{modelserver.ChatCompletions, modelserver.Responses, modelserver.Messages} {
			if resp, text := post(t, ms.URL()+route, body); resp.StatusCode != 400 || !strings.Contains(text, `"invalid_request_error"`) {
				t.Errorf("%s %s: %d %s", route, body, resp.StatusCode, text)
			}
		}
	}
	if ms.Requests() != 15 || len(ms.Bill()) != 0 {
		t.Errorf("%d requests, bill %+v", ms.Requests(), ms.Bill())
	}
}

// Headers that decide what a client does next.
func TestRefusalHeaders(t *testing.T) {
	ms := start(t, modelserver.Options{})
	ms.ScriptAny(
		modelserver.Fault{Kind: modelserver.RateLimit, RetryAfter: 7 * time.Second},
		modelserver.Fault{Kind: modelserver.RateLimit},
		modelserver.Fault{Kind: modelserver.SpendLimit},
		modelserver.Fault{Kind: modelserver.ServerError, Header: map[string]string{"X-Should-Retry": "false"}},
	)
	for _, want := range []struct{ after, retry string }{{"7", ""}, {"1", ""}, {"", ""}, {"", "false"}} {
		resp, _ := post(t, ms.URL()+modelserver.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
		if h := resp.Header; h.Get("Retry-After") != want.after || h.Get("X-Should-Retry") != want.retry {
			t.Errorf("want %+v, got %v", want, h)
		}
	}
	ms.ScriptAny(modelserver.Fault{Kind: modelserver.SpendLimit})
	c := claude(ms.URL(), noRetries())
	_, err := c.Messages.New(t.Context(), messageParams())
	if e, ok := errors.AsType[*anthropic.Error](err); !ok || e.ErrorCode() != "enforced_spend_limit_reached" {
		t.Errorf("%v", err)
	}
}

// Faults of a key come before those for any key, which come before a storm.
func TestScriptOrder(t *testing.T) {
	ms := start(t, modelserver.Options{Storm: modelserver.Storm{Rate: 1, Faults: []modelserver.Fault{{Kind: modelserver.Overloaded}}}})
	ms.ScriptAny(modelserver.Fault{Kind: modelserver.BadRequest}, modelserver.Fault{})
	ms.Script("A", modelserver.Fault{Kind: modelserver.Conflict, Times: 2})
	for i, want := range []struct {
		key    string
		status int
	}{{"A", 409}, {"B", 400}, {"A", 409}, {"A", 200}, {"A", 503}, {"B", 503}} {
		resp, _ := post(t, ms.URL()+modelserver.Responses, `{"model":"m","input":"[key:`+want.key+`]"}`)
		if resp.StatusCode != want.status {
			t.Errorf("request %d of %s: %d, want %d", i, want.key, resp.StatusCode, want.status)
		}
	}
}

// What a storm does to a key does not depend on what other keys do meanwhile.
func TestStormIsRepeatable(t *testing.T) {
	storm := modelserver.Storm{Seed: 7, Rate: 0.3, Faults: []modelserver.Fault{{Kind: modelserver.Overloaded}, {Kind: modelserver.ServerError}}}
	run := func(keys ...string) map[string]string {
		ms := start(t, modelserver.Options{Storm: storm})
		saw := map[string]string{}
		for range 20 {
			for _, k := range keys {
				resp, _ := post(t, ms.URL()+modelserver.Responses, `{"model":"m","input":"[key:`+k+`]"}`)
				saw[k] += fmt.Sprint(resp.StatusCode, " ")
			}
		}
		return saw
	}
	one, two := run("A", "B"), run("B", "C", "A")
	if one["A"] != two["A"] || one["B"] != two["B"] || one["A"] == one["B"] {
		t.Errorf("one %v, two %v", one, two)
	}
	for _, status := range []string{"200", "500", "503"} {
		if !strings.Contains(one["A"]+one["B"], status) {
			t.Errorf("no %s in %v", status, one)
		}
	}
}

// Other processes script and read the server over HTTP.
func TestOverHTTP(t *testing.T) {
	ms := start(t, modelserver.Options{})
	if resp, text := post(t, ms.URL()+"/script", `{"key":"A","faults":[{"kind":"reset","times":1},{"hold":true}]}`); resp.StatusCode != 200 {
		t.Fatal(text)
	}
	body := `{"model":"m","input":"[key:A]"}`
	if _, err := http.Post(ms.URL()+modelserver.Responses, "application/json", strings.NewReader(body)); err == nil {
		t.Error("no reset")
	}
	answered := make(chan int, 1)
	go func() {
		resp, err := http.Post(ms.URL()+modelserver.Responses, "application/json", strings.NewReader(body))
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	wait(t, ms, func(l modelserver.Line) bool { return l.Fault == "hold" })
	if _, text := post(t, ms.URL()+"/release?key=A", ""); text != `{"released":1}` {
		t.Error(text)
	}
	if n := <-answered; n != 200 {
		t.Errorf("held request: %d", n)
	}
	var bill []modelserver.Line
	var requests map[string]int
	getJSON(t, ms.URL()+"/bill", &bill)
	getJSON(t, ms.URL()+"/requests", &requests)
	if len(bill) != 2 || bill[0].Key != "A" || bill[0].Delivered || !bill[1].Delivered || requests["A"] != 2 {
		t.Errorf("bill %+v, requests %v", bill, requests)
	}
	for _, bad := range []string{`{"faults":[{"kind":"resett"}]}`, `{"fault":[]}`, `{`, `{"faults":[{"kind":"cut","billed":false}]}`} {
		if resp, _ := post(t, ms.URL()+"/script", bad); resp.StatusCode != 400 {
			t.Errorf("%s is taken: %d", bad, resp.StatusCode)
		}
	}
}

// A body that never got written in full is no request: nothing is generated.
func TestResetUnread(t *testing.T) {
	ms := start(t, modelserver.Options{})
	ms.Script("client-7", modelserver.Fault{Kind: modelserver.ResetUnread})
	big := append([]byte(`{"model":"m","input":"`), bytes.Repeat([]byte("x"), 20<<20)...)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", ms.URL()+modelserver.Responses, bytes.NewReader(append(big, `"}`...)))
	req.Header.Set("X-Client-Request-Id", "client-7")
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Error("answered")
	}
	if len(ms.Bill()) != 0 || ms.RequestsByKey()["client-7"] != 1 {
		t.Errorf("requests %v, bill %+v", ms.RequestsByKey(), ms.Bill())
	}
}

// Close ends what is held, and a closed port refuses.
func TestClose(t *testing.T) {
	ms := start(t, modelserver.Options{})
	ms.ScriptAny(modelserver.Fault{Hold: true}, modelserver.Fault{After: time.Hour})
	answered := make(chan got)
	for range 2 {
		go func() { answered <- askChat(t.Context(), ms.URL(), noRetries()) }()
	}
	wait(t, ms, func(l modelserver.Line) bool { return l.N == 2 })
	if err := ms.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if g := <-answered; g.err == nil {
			t.Errorf("client got %+v", g)
		}
	}
	if g := askChat(t.Context(), ms.URL(), noRetries()); g.err == nil {
		t.Error("answered after Close")
	}
	if _, err := ms.WaitFor(cancelled(t), func(modelserver.Line) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitFor: %v", err)
	}
	again := start(t, modelserver.Options{Addr: strings.TrimPrefix(ms.URL(), "http://")})
	if g := askChat(t.Context(), again.URL(), noRetries()); g.err != nil {
		t.Error(g.err)
	}
}

// Close waits for the model, so that nothing is written to the bill after it.
func TestCloseWaits(t *testing.T) {
	entered, left := make(chan struct{}), atomic.Bool{}
	ms := start(t, modelserver.Options{Generate: func(modelserver.Request) string {
		close(entered)
		time.Sleep(50 * time.Millisecond)
		left.Store(true)
		return ""
	}})
	go askChat(t.Context(), ms.URL(), noRetries())
	<-entered
	if err := ms.Close(); err != nil || !left.Load() {
		t.Errorf("closed with a request in hand (%v)", err)
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
