package job

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

const chatStart = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"
const chatFinish = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
const chatUsage = "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n"
const chatDone = "data: [DONE]\n\n"

// streaming is a server that sends pieces of an event stream, each when it is told to
// or at once, and ends the response as end says.
func streaming(t *testing.T, pieces []string, gate <-chan struct{}, end func(w http.ResponseWriter)) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Request-Id", "req_1")
		for _, p := range pieces {
			io.WriteString(w, p)
			http.NewResponseController(w).Flush()
			if gate != nil {
				select {
				case <-gate:
				case <-r.Context().Done():
					return
				}
			}
		}
		if end != nil {
			end(w)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

func abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// open posts and returns the response with its body unread.
func open(ctx context.Context, a *Attempt, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	return a.HTTP().Do(req)
}

// TestStreamEnds: which ends of a stream count as an answer.
func TestStreamEnds(t *testing.T) {
	message := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"usage\":{\"input_tokens\":4,\"cache_read_input_tokens\":2,\"output_tokens\":1}}}\n\n"
	created := "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\n"
	cases := []struct {
		name, provider string
		text           string
		cut            bool
		state          ledger.AttemptState
		class          string
		id             string
		in, out        int64
	}{
		{"chat", "openai", chatStart + chatFinish + chatUsage + chatDone, false, ledger.Received, "done", "chatcmpl-1", 5, 2},
		{"chat without DONE", "openai", chatStart + chatFinish + chatUsage, false, ledger.Received, "done", "chatcmpl-1", 5, 2},
		{"chat cut behind its finish", "openai", chatStart + chatFinish, true, ledger.Received, "done", "chatcmpl-1", -1, -1},
		{"chat with DONE alone", "openai", chatStart + chatDone, false, ledger.Sent, "no_terminal_event", "chatcmpl-1", -1, -1},
		{"DONE alone", "openai", chatDone, false, ledger.Sent, "no_terminal_event", "", -1, -1},
		{"nothing", "openai", "", false, ledger.Sent, "no_terminal_event", "", -1, -1},
		{"one of two choices", "openai", chatStart + "data: {\"choices\":[{\"index\":1}]}\n\n" + chatFinish + chatDone, false, ledger.Sent, "no_terminal_event", "chatcmpl-1", -1, -1},
		{"a filter's word behind the finish", "openai", chatStart + chatFinish + chatStart + chatDone, false, ledger.Received, "done", "chatcmpl-1", -1, -1},
		{"chat error", "openai", chatStart + "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\"}}\n\n", false, ledger.FailedAttempt, "provider_error", "chatcmpl-1", -1, -1},
		{"no empty line at the end", "openai", chatStart + chatFinish + "data: [DONE]", false, ledger.Received, "done", "chatcmpl-1", -1, -1},
		{"chat of a provider without a name", "", chatStart, false, ledger.Sent, "no_terminal_event", "chatcmpl-1", -1, -1},
		{"carriage returns", "openai", strings.ReplaceAll(chatStart+chatFinish+chatDone, "\n", "\r\n"), false, ledger.Received, "done", "chatcmpl-1", -1, -1},
		{"response", "openai", created + "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}}\n\n", false, ledger.Received, "done", "resp_1", 7, 3},
		{"response incomplete", "openai", created + "data: {\"type\":\"response.incomplete\",\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}}\n\n", false, ledger.Received, "done", "resp_1", 7, 3},
		{"response failed", "openai", created + "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_1\",\"error\":{\"message\":\"no\"},\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}}\n\n", false, ledger.FailedAttempt, "provider_error", "resp_1", 7, 3},
		{"response with a gateway's DONE", "openai", created + chatDone, false, ledger.Sent, "no_terminal_event", "resp_1", -1, -1},
		{"response cut", "openai", created, true, ledger.Sent, "cut_stream", "resp_1", -1, -1},
		{"message", "anthropic", message + "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", false, ledger.Received, "done", "msg_1", 6, 9},
		{"message without its stop", "anthropic", message + "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n", false, ledger.Sent, "no_terminal_event", "msg_1", 6, 9},
		{"message error", "anthropic", message + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", false, ledger.FailedAttempt, "overloaded", "msg_1", 6, 1},
		{"unknown family", "", "data: one\n\ndata: two\n\n", false, ledger.Received, "done", "", -1, -1},
		{"unknown family cut", "", "data: one\n\ndata: two\n\n", true, ledger.Sent, "cut_stream", "", -1, -1},
		{"unknown family of a known provider", "openai", "data: one\n\n", false, ledger.Sent, "no_terminal_event", "", -1, -1},
		{"an assistant's run", "openai", "event: thread.run.completed\ndata: {\"id\":\"run_1\",\"object\":\"thread.run\"}\n\nevent: done\ndata: [DONE]\n\n", false, ledger.Received, "done", "run_1", -1, -1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			end := func(http.ResponseWriter) {}
			if c.cut {
				end = abort
			}
			srv := streaming(t, []string{c.text}, nil, end)
			f := &fake{}
			var read string
			var rerr error
			got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				resp, err := open(ctx, a, srv.URL)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				read, rerr = string(b), err
				return read, err
			})
			row := f.one(t)
			e := row.evidence
			if row.state != c.state || e.Class != c.class || e.ObjectID != c.id || num(e.Usage.In) != c.in || num(e.Usage.Out) != c.out || e.ProviderRequestID != "req_1" {
				t.Errorf("on record: %s, %s, id %q, in %d, out %d, request %q; want %+v (%v)", row.state, e.Class, e.ObjectID, num(e.Usage.In), num(e.Usage.Out), e.ProviderRequestID, c, got.err)
			}
			if (rerr != nil) != (c.state == ledger.Sent) {
				t.Errorf("reading ends with %v and an attempt that is %s", rerr, row.state)
			}
			if read != c.text {
				t.Errorf("user code read %q, want all of %q", read, c.text)
			}
			if (got.err == nil) != (c.state == ledger.Received) {
				t.Errorf("user code's error is %v with an attempt that is %s", got.err, row.state)
			}
		})
	}
}

// TestStreamFlows: what comes before the end reaches user code at once, and the end
// does not before the answer is on record.
func TestStreamFlows(t *testing.T) {
	gate := make(chan struct{})
	srv := streaming(t, []string{chatStart, ": ping\n\n", chatStart[:20], chatStart[20:], chatFinish + chatDone}, gate, nil)
	f := &fake{}
	recorded, goOn := make(chan struct{}), make(chan struct{})
	f.onSettle = func(_ int, e ledger.Evidence) error {
		if e.State == ledger.Received {
			close(recorded)
			<-goOn
		}
		return nil
	}
	ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		resp, err := open(ctx, a, srv.URL)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body := bufio.NewReader(resp.Body)
		want := func(s string) {
			t.Helper()
			b := make([]byte, len(s))
			if _, err := io.ReadFull(body, b); err != nil || string(b) != s {
				t.Fatalf("read %q, %v; want %q", b, err, s)
			}
		}
		want(chatStart)
		gate <- struct{}{}
		want(": ping\n\n")
		gate <- struct{}{}
		gate <- struct{}{}
		want(chatStart)
		gate <- struct{}{}
		<-recorded
		next := make(chan error, 1)
		go func() {
			_, err := body.Peek(1)
			next <- err
		}()
		select {
		case <-next:
			t.Error("the end of the stream was passed on before it was on record")
		case <-time.After(20 * time.Millisecond):
		}
		close(goOn)
		if err := <-next; err != nil {
			t.Error(err)
		}
		want(chatFinish + chatDone)
		if n, err := body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("behind the end: %d, %v", n, err)
		}
		close(gate) // the server may have seen the connection end already
		return "", nil
	})
	if row := f.one(t); row.state != ledger.Received {
		t.Errorf("on record: %s", row.state)
	}
}

// TestStreamID: the id is on record while the stream goes on, and a ledger that is
// slow with it holds nothing up.
func TestStreamID(t *testing.T) {
	gate := make(chan struct{})
	srv := streaming(t, []string{chatStart, chatFinish + chatDone}, gate, nil)
	f := &fake{}
	noted, hang := make(chan ledger.Evidence, 1), make(chan struct{})
	f.onSettle = func(_ int, e ledger.Evidence) error {
		if e.State == ledger.Sent {
			noted <- e
			<-hang
		}
		return nil
	}
	ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		resp, err := open(ctx, a, srv.URL)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, len(chatStart))); err != nil {
			t.Error(err)
		}
		if e := <-noted; e.ObjectID != "chatcmpl-1" || e.ProviderRequestID != "req_1" {
			t.Errorf("noted %+v", e)
		}
		gate <- struct{}{}
		close(hang)
		close(gate)
		_, err = io.ReadAll(resp.Body)
		return "", err
	})
	if row := f.one(t); row.state != ledger.Received {
		t.Errorf("on record: %s", row.state)
	}
}

// TestStreamLeft: user code that closes early, does not read, or gives up on its own context
// does not lose the answer.
func TestStreamLeft(t *testing.T) {
	text := chatStart + chatFinish + chatUsage + chatDone
	for name, leave := range map[string]func(ctx context.Context, a *Attempt, url string) error{
		"closed at once": func(ctx context.Context, a *Attempt, url string) error {
			resp, err := open(ctx, a, url)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("reading a closed body says %v", err)
			}
			return nil
		},
		"not read": func(ctx context.Context, a *Attempt, url string) error {
			_, err := open(ctx, a, url)
			return err
		},
		"context ended in mid-stream": func(ctx context.Context, a *Attempt, url string) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			resp, err := open(ctx, a, url)
			if err != nil {
				return err
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, len(chatStart))); err != nil {
				t.Error(err)
			}
			cancel()
			_, err = io.ReadAll(resp.Body)
			return err
		},
		"panicked": func(ctx context.Context, a *Attempt, url string) error {
			if _, err := open(ctx, a, url); err != nil {
				return err
			}
			panic("user code")
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			srv := streaming(t, []string{chatStart, chatFinish + chatUsage + chatDone}, gate, nil)
			var once sync.Once
			f := &fake{}
			func() {
				defer func() { recover() }()
				ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
					defer once.Do(func() {
						close(gate)
					})
					return "", leave(ctx, a, srv.URL)
				})
			}()
			row := f.one(t)
			if row.state != ledger.Received || num(row.evidence.Usage.In) != 5 {
				t.Fatalf("on record: %s, %s, %d tokens", row.state, row.evidence.Class, num(row.evidence.Usage.In))
			}
			again := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				return post(ctx, a.HTTP(), "http://127.0.0.1:1", "{}")
			})
			if again.err != nil || again.out != text {
				t.Errorf("played back: %q, %v; want %q", again.out, again.err, text)
			}
		})
	}
}

// TestCallerLeaves: a context of user code's own that ends before the answer loses
// nothing either; the SDKs' next try is refused.
func TestCallerLeaves(t *testing.T) {
	for _, c := range clients {
		if c.stream || c.provider == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			release := make(chan struct{})
			n := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				n++
				<-release
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, strings.Replace(okBody, `"id"`, `"type":"message","id"`, 1))
			}))
			defer srv.Close()
			f := &fake{}
			got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				s, err := c.ask(ctx, a.HTTP(), srv.URL)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("user code's error is %v", err)
				}
				close(release)
				return s, err
			})
			if row := f.one(t); n != 1 || row.state != ledger.Received || got.outcome.evidence.State != ledger.Received {
				t.Errorf("%d requests; on record: %s, %s", n, row.state, row.evidence.Class)
			}
			if got.err == nil || !strings.Contains(got.err.Error(), "the answer is kept") {
				t.Errorf("the call says %v", got.err)
			}
		})
	}
}

// TestTeeBody: many readers of one body race with what feeds it.
func TestTeeBody(t *testing.T) {
	tee := newTee()
	body := newTeeBody(t.Context(), tee)
	var text []byte
	go func() {
		for i := range 1000 {
			text = append(text, byte(i))
			tee.pass(text, len(text), nil)
		}
		tee.pass(text, len(text), io.EOF)
	}()
	b, err := io.ReadAll(body)
	if err != nil || len(b) != 1000 || !bytes.Equal(b, text) {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}
