package app

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/planted"
)

// client is what a handler may log, and ought not to.
type client struct {
	Name    string
	Key     string `json:"api_key"`
	private string
	Raw     []byte
	Next    *client `json:",omitempty"`
}

// broken is a value whose own code panics.
type broken struct{ *client }

func (b broken) String() string { panic("no client: " + planted.Secret("sk")) }

// hints tells of a client by slog.LogValuer.
type hints client

func (h hints) LogValue() slog.Value { return slog.AnyValue(client(h)) }

// TestLogScrubsValues: whatever a handler logs, in whatever it is wrapped, holds no secret of the configuration.
func TestLogScrubsValues(t *testing.T) {
	key, odd := planted.Secret("sk"), `w"0/`+planted.Mark+`&<\é>`
	held := client{Name: "openai", Key: key, private: odd, Raw: []byte(key), Next: &client{Key: odd}}
	values := map[string]any{
		"struct": held, "pointer": &held, "slice": []client{held}, "map": map[string]any{"headers": http.Header{"Authorization": {"Bearer " + key}}},
		"key of a map": map[string]int{key: 1, odd: 2}, "texts": []string{"x", key, odd}, "bytes": []byte("x" + key), "raw": json.RawMessage(`{"k":"` + key + `"}`),
		"errors": []error{errors.New(key)}, "error": fmt.Errorf("wrapped: %w", errors.New(odd)), "url": &url.URL{Scheme: "https", Host: "h", RawQuery: url.Values{"k": {odd}}.Encode()},
		"urls": []url.URL{{Path: odd}}, "basic": []string{base64.StdEncoding.EncodeToString([]byte("u:" + key))}, "panic": broken{&held}, "hints": hints(held),
		"group": slog.GroupValue(slog.Any("in", held), slog.Any(key, 1)), "json": json.Number(key), "no JSON": map[string]any{"f": func() {}, "k": key}, "nil": (*client)(nil),
	}
	for _, format := range []string{"json", "text"} {
		c := &call{Process: Process{Environ: []string{"PAIDONCE_LOG_FORMAT=" + format, "PAIDONCE_LEDGER_URL=postgres://u@h/d",
			"PAIDONCE_PROVIDERS_OPENAI_API_KEY=" + key, "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=" + odd}}}
		cfg, err := c.load()
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range values {
			var b bytes.Buffer
			logger(cfg, &b).With("before", v).Info("m", "v", v)
			for _, found := range planted.Find(b.String()) {
				t.Errorf("%s of a %s: a secret in the log: %s", format, name, found)
			}
			if !strings.Contains(b.String(), "m") || strings.Count(b.String(), "\n") != 1 {
				t.Errorf("%s of a %s: logged %q", format, name, &b)
			}
		}
	}
}

// A value keeps its form in a log for machines, and what is no secret in it.
func TestLogKeepsForm(t *testing.T) {
	key := planted.Secret("sk")
	c := &call{Process: Process{Environ: []string{"PAIDONCE_LOG_FORMAT=json", "PAIDONCE_LEDGER_URL=postgres://u@h/d", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=" + key}}}
	cfg, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	logger(cfg, &b).Info("m", "v", client{Name: "a<b", Key: key, Next: &client{Name: "next"}}, "n", []int{1, 2}, "none", nil, "yes", true)
	for _, want := range []string{`"v":{"Name":"a<b","api_key":"(hidden)","Raw":null,"Next":{"Name":"next","api_key":"","Raw":null}}`, `"n":[1,2]`, `"none":null`, `"yes":true`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("logged %s, want %s in it", &b, want)
		}
	}
}
