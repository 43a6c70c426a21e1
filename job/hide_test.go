package job

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

const plantedKey = "sk-planted-0123456789"

// TestCredentialsHidden: a provider that repeats a request's credentials in what it says puts them into no row and no error.
func TestCredentialsHidden(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + plantedKey))
	for name, c := range map[string]struct {
		status int
		media  string
		body   string // %s: what is repeated
		state  string // of the attempt
	}{
		"own error":    {401, "application/json", `{"error":{"message":"Incorrect API key provided: %s.","type":"invalid_request_error","code":"invalid_api_key"}}`, "rejected"},
		"page":         {403, "text/html", "<html>GET / Authorization: Bearer %s</html>", "rejected"},
		"unclear":      {502, "application/json", `{"error":{"message":"upstream refused %s","type":"server_error"}}`, "sent"},
		"broken off":   {200, "text/event-stream", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"with %s\"}}\n\n", "failed"},
		"failed whole": {200, "application/json", `{"id":"r","object":"response","status":"failed","error":{"code":"server_error","message":"with %s"}}`, "failed"},
		"answer":       {200, "application/json", okBody, "received"},
	} {
		for _, h := range []http.Header{{"Authorization": {"Bearer " + plantedKey}}, {"X-Api-Key": {plantedKey}}, {"Authorization": {"Basic " + basic}}, {"X-Gateway-Token": {plantedKey}}} {
			t.Run(name+" "+fmt.Sprint(h), func(t *testing.T) {
				body := c.body
				if strings.Contains(body, "%s") {
					body = fmt.Sprintf(body, plantedKey)
				}
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", c.media)
					w.Header().Set("X-Request-Id", "req_1")
					w.Header().Set("X-Echo", "with "+plantedKey)
					w.WriteHeader(c.status)
					io.WriteString(w, body)
				}))
				defer srv.Close()
				f := &fake{}
				var seen string
				got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
					req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/?key="+plantedKey, strings.NewReader("{}"))
					if err != nil {
						return "", err
					}
					req.Header = h.Clone()
					resp, err := a.HTTP().Do(req)
					if err != nil {
						return "", err
					}
					defer resp.Body.Close()
					b, _ := io.ReadAll(resp.Body) // a stream may break off
					if seen = string(b); resp.StatusCode != 200 {
						return "", fmt.Errorf("%s: %s", resp.Status, b)
					}
					return seen, nil
				})
				row := f.one(t)
				if string(row.state) != c.state {
					t.Errorf("the attempt is %s, want %s", row.state, c.state)
				}
				e := row.evidence
				e.Response = nil
				stored := fmt.Sprintf("%+v %v", e, got.err)
				if row.evidence.Response != nil {
					stored += string(row.evidence.Response.Body)
				}
				if strings.Contains(stored, plantedKey) {
					t.Errorf("the key is kept: %s", stored)
				}
				if c.status != 200 && (strings.Contains(seen, plantedKey) || !strings.Contains(seen, hiddenText)) {
					t.Errorf("an SDK would show it: %s", seen)
				}
			})
		}
	}
}

// TestPollsHideCredentials: nor does a look at a response in background mode.
func TestPollsHideCredentials(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			io.WriteString(w, `{"id":"resp_1","object":"response","status":"queued"}`)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s.","type":"t","code":"c"}}`, r.Header.Get("Authorization"))
	}))
	defer srv.Close()
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/responses", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+plantedKey)
		resp, err := a.HTTP().Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	})
	if text := fmt.Sprint(got.err); strings.Contains(text, plantedKey) || !strings.Contains(text, "provided: (hidden).") {
		t.Errorf("the error is %s", text)
	}
}

// TestEncodedCredentials: nor do they come through as a URL or a JSON string has them.
func TestEncodedCredentials(t *testing.T) {
	req, err := http.NewRequest("POST", "https://h/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	const secret = `sk/plan+ted"0123`
	req.Header.Set("Authorization", "Bearer "+secret)
	for _, text := range []string{secret, "?key=sk%2Fplan%2Bted%220123&x=1", "/sk%2Fplan+ted%220123/x", `{"m":"sk/plan+ted\"0123"}`, `{"m":"sk\/plan+ted\"0123"}`} {
		if got := string(hide([]byte(text), credentials(req))); strings.Contains(got, "ted") || !strings.Contains(got, hiddenText) {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}

// TestCredentials: what counts as one. Short values and ordinary headers do not, or answers would lose their words.
func TestCredentials(t *testing.T) {
	req, err := http.NewRequest("POST", "https://h/v1?key=planted-q1&api_key=planted-q2&alt=streaming-json&max_tokens=7", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer planted-bearer"}, "X-Goog-Api-Key": {"planted-goog"}, "Cookie": {"short"},
		"Content-Type": {"application/json"}, "X-Client-Request-Id": {"0123456789abcdef"}, "User-Agent": {"OpenAI/Go 3.0.0"}}
	got := credentials(req)
	slices.Sort(got)
	if want := []string{"Bearer planted-bearer", "planted-bearer", "planted-goog", "planted-q1", "planted-q2"}; !slices.Equal(got, want) {
		t.Errorf("credentials are %q, want %q", got, want)
	}
}

// TestEffectHidesCredentials: what a receiver refuses with is read by whoever judges it, without the request's credentials; an
// answer is its sender's own.
func TestEffectHidesCredentials(t *testing.T) {
	for status, want := range map[int]string{400: "no (hidden)", 500: "no (hidden)", 200: "no " + plantedKey} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, "no "+r.Header.Get("X-Shop-Token"))
		}))
		defer srv.Close()
		got := ask(t, testRun(t, &fake{}, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, strings.NewReader("{}"))
			if err != nil {
				return "", err
			}
			req.Header.Set("X-Shop-Token", plantedKey)
			resp, err := a.Effect().Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return string(text), err
		})
		if got.err != nil || got.out != want {
			t.Errorf("%d: %q, %v; want %q", status, got.out, got.err, want)
		}
	}
}
