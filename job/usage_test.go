package job

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		body            string
		in, cached, out int64
	}{
		"chat":              {`{"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}`, 10, 4, 5},
		"responses":         {`{"usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4}}}`, 10, 4, 5},
		"messages":          {`{"usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"output_tokens":5}}`, 17, 4, 5},
		"messages, null":    {`{"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":5}}`, 10, -1, 5},
		"a proxy's mixture": {`{"usage":{"prompt_tokens":10,"completion_tokens":5,"cache_read_input_tokens":4}}`, 10, -1, 5},
		"bedrock":           {`{"usage":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":4,"cacheWriteInputTokens":3}}`, 17, 4, 5},
		"gemini":            {`{"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":3}}`, 10, 4, 8},
		"none":              {`{"usage":null}`, -1, -1, -1},
		"partly":            {`{"usage":{"output_tokens":5}}`, -1, -1, 5},
		"hostile":           {`{"usage":{"prompt_tokens":-1,"completion_tokens":1e30,"prompt_tokens_details":"x"}}`, -1, -1, -1},
		"hostile too":       {`{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":"5","prompt_tokens_details":{"cached_tokens":1.5}}}`, -1, -1, -1},
		"not even that":     {`{"usage":[1,2]}`, -1, -1, -1},
	} {
		d, ok := readDocument([]byte(c.body))
		if !ok {
			t.Errorf("%s: not read", name)
			continue
		}
		var u tally
		u.add(d.tally())
		got := u.usage()
		if num(got.In) != c.in || num(got.Cached) != c.cached || num(got.Out) != c.out {
			t.Errorf("%s: %d, %d, %d; want %d, %d, %d", name, num(got.In), num(got.Cached), num(got.Out), c.in, c.cached, c.out)
		}
	}
}

func TestReadDocument(t *testing.T) {
	for body, want := range map[string]bool{
		`{}`: true, ` {"a":1} `: true, `{"id":5,"choices":"x"}`: true,
		``: false, `[]`: false, `"x"`: false, `null`: false, `{`: false, `{} {}`: false, `{}x`: false, `<html>`: false,
	} {
		if _, got := readDocument([]byte(body)); got != want {
			t.Errorf("%q: %t, want %t", body, got, want)
		}
	}
}

// FuzzDocument: nothing that a provider writes is a reason to fail, and what comes
// out fits into rows.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(okBody))
	f.Add([]byte(`{"id":"a\u0000b","usage":{"input_tokens":1099511627776,"cache_read_input_tokens":1099511627776},"response":{"id":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, ok := readDocument(body)
		if ok && !json.Valid(body) {
			t.Fatal("read what is not JSON")
		}
		var u tally
		u.add(d.tally())
		got := u.usage()
		for _, n := range []*int64{got.In, got.Cached, got.Out} {
			if n != nil && (*n < 0 || *n > 3*maxCount) {
				t.Fatalf("usage %d", *n)
			}
		}
		for _, s := range []string{d.objectID(), generic.readError(nil, body).text, generic.readError(nil, body).requestID} {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || len(s) > maxText {
				t.Fatalf("text %q", s)
			}
		}
	})
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		" a\x00b\nc ": "a b c", "\xff": "", "é": "é", strings.Repeat("é", 10): "éééé",
	} {
		if got := clean(in, 9); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
