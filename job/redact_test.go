package job

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
)

type noteIn struct{ Doc string }

func (n noteIn) JobKey() Key { return K("acme", "note", n.Doc) }

// redacting is a handler with the hook.
func redacting(t *testing.T, redact func(Part, []byte) []byte) *Handler {
	t.Helper()
	var reg Registry
	Register(&reg, Def[noteIn, string]{Name: "note", Redact: redact, Handle: func(context.Context, *Run, noteIn) (string, error) { return "", nil }})
	h, ok := reg.Lookup("note")
	if !ok {
		t.Fatalf("note is not registered; there are %v", reg.Names())
	}
	return h
}

func TestShown(t *testing.T) {
	stars := func(_ Part, b []byte) []byte { return bytes.ReplaceAll(b, []byte("secret"), []byte("***")) }
	for name, c := range map[string]struct {
		redact func(Part, []byte) []byte
		part   Part
		body   string
		want   string
	}{
		"no hook":            {nil, PartResult, `"secret"`, `"secret"`},
		"result":             {stars, PartResult, `{"a":"secret"}`, `{"a":"***"}`},
		"answer":             {stars, PartAnswer, "HTTP/1.1 200 OK\r\n\r\nsecret", "HTTP/1.1 200 OK\r\n\r\n***"},
		"text":               {stars, PartText, "PO353 secret", "PO353 ***"},
		"nothing is nothing": {func(Part, []byte) []byte { panic("it is called") }, PartText, "", ""},
		"emptied":            {func(Part, []byte) []byte { return []byte{} }, PartText, "secret", ""},
		"emptied result":     {func(Part, []byte) []byte { return []byte{} }, PartResult, `"secret"`, `"(withheld: Redact of note made no JSON of it)"`},
		"no JSON":            {func(_ Part, b []byte) []byte { return b[1:] }, PartResult, `"secret"`, `"(withheld: Redact of note made no JSON of it)"`},
		"nil":                {func(Part, []byte) []byte { return nil }, PartText, "secret", "(withheld: Redact of note returned nil)"},
		"nil for a result":   {func(Part, []byte) []byte { return nil }, PartResult, `"secret"`, `"(withheld: Redact of note returned nil)"`},
		"panic":              {func(_ Part, b []byte) []byte { panic(string(b)) }, PartAnswer, "secret", "(withheld: Redact of note panicked)"},
		"panic for a result": {func(_ Part, b []byte) []byte { panic(string(b)) }, PartResult, `"secret"`, `"(withheld: Redact of note panicked)"`},
	} {
		h := redacting(t, c.redact)
		if got := h.Shown(c.part, []byte(c.body)); string(got) != c.want {
			t.Errorf("%s: shown as %s, want %s", name, got, c.want)
		} else if c.part == PartResult && !json.Valid(got) {
			t.Errorf("%s: %s is no JSON", name, got)
		}
		if got := h.ShownText(c.body); c.part == PartText && got != c.want {
			t.Errorf("%s: shown as %s, want %s", name, got, c.want)
		}
	}
	if got := (*Handler)(nil).ShownText("secret"); got != "secret" {
		t.Errorf("without a handler: shown as %s", got)
	}
}

// The hook may write into what it is given: a result is the ledger's, and is used after it was shown.
func TestShownLeavesTheBody(t *testing.T) {
	var parts []Part
	h := redacting(t, func(p Part, b []byte) []byte {
		parts = append(parts, p)
		clear(b[1 : len(b)-1])
		return []byte(`"cleared"`)
	})
	body := []byte(`"secret"`)
	if got := h.Shown(PartResult, body); string(got) != `"cleared"` || string(body) != `"secret"` || len(parts) != 1 || parts[0] != PartResult {
		t.Errorf("shown as %s, the body is %s now, the hook was given %v", got, body, parts)
	}
}
