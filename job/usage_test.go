package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/paidonce/paidonce/prices"
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

// What the price of an answer depends on is found wherever the provider puts it, and
// what nobody can price is named.
func TestBill(t *testing.T) {
	type m = prices.Call
	for name, c := range map[string]struct {
		body string
		want m
	}{
		"chat": {`{"model":"gpt-5-mini-2025-08-07","service_tier":"default","usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}}}`,
			m{Answered: "gpt-5-mini-2025-08-07", Usage: prices.Usage{In: 10, CacheRead: 4, CacheWrite: 2, Out: 5, Reasoning: 3}}},
		"responses": {`{"model":"m","service_tier":"Flex","usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens_details":{"reasoning_tokens":3}}}`,
			m{Answered: "m", Usage: prices.Usage{In: 10, CacheRead: 4, CacheWrite: 2, Out: 5, Reasoning: 3, Terms: []string{"flex"}}}},
		"messages": {`{"model":"m","usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},"output_tokens":5,"output_tokens_details":{"thinking_tokens":2},"service_tier":"batch","speed":"fast","inference_geo":"us"}}`,
			m{Answered: "m", Usage: prices.Usage{In: 17, CacheRead: 4, CacheWrite: 1, CacheWrite1h: 2, Out: 5, Reasoning: 2, Terms: []string{"batch", "fast", "us"}}}},
		"messages, the usual": {`{"usage":{"input_tokens":10,"cache_read_input_tokens":0,"cache_creation_input_tokens":3,"output_tokens":5,"service_tier":"standard","speed":"standard","inference_geo":"not_available"}}`,
			m{Usage: prices.Usage{In: 13, CacheWrite: 3, Out: 5}}},
		"messages, the split alone": {`{"usage":{"input_tokens":10,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},"output_tokens":5}}`,
			m{Usage: prices.Usage{In: 13, CacheWrite: 1, CacheWrite1h: 2, Out: 5}}},
		"messages, searched": {`{"usage":{"input_tokens":10,"output_tokens":5,"server_tool_use":{"web_search_requests":2}}}`, m{Usage: prices.Usage{In: 10, Out: 5, Terms: []string{"web_search"}}}},
		"bedrock": {`{"serviceTier":{"type":"priority"},"usage":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":4,"cacheWriteInputTokens":3}}`,
			m{Usage: prices.Usage{In: 17, CacheRead: 4, CacheWrite: 3, Out: 5, Terms: []string{"priority"}}}},
		"gemini": {`{"modelVersion":"g","usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":3,"toolUsePromptTokenCount":1,"trafficType":"PROVISIONED_THROUGHPUT"}}`,
			m{Answered: "g", Usage: prices.Usage{In: 10, CacheRead: 4, Out: 8, Reasoning: 3, Terms: []string{"provisioned_throughput", "tool_prompts"}}}},
		"gemini, the usual":           {`{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"trafficType":"ON_DEMAND"}}`, m{Usage: prices.Usage{In: 10, Out: 5}}},
		"audio":                       {`{"usage":{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"audio_tokens":3}}}`, m{Usage: prices.Usage{In: 10, Out: 5, Terms: []string{"audio"}}}},
		"no tier that one could read": {`{"model":7,"service_tier":{"x":1},"usage":{"prompt_tokens":1,"completion_tokens":1}}`, m{Answered: "unreadable", Usage: prices.Usage{In: 1, Out: 1, Terms: []string{"unreadable"}}}},
		"null":                        {`{"model":null,"service_tier":null,"usage":{"prompt_tokens":1,"completion_tokens":1}}`, m{Usage: prices.Usage{In: 1, Out: 1}}},
		"input alone":                 {`{"usage":{"prompt_tokens":10}}`, m{NoUsage: true, Usage: prices.Usage{In: 10}}},
		"none":                        {`{"model":"m"}`, m{Answered: "m", NoUsage: true}},
		"a batch":                     {`{"object":"batch","model":"m","usage":{"input_tokens":0,"output_tokens":0}}`, m{NoUsage: true}},
		"contradiction":               {`{"usage":{"input_tokens":1,"cache_creation_input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":2},"output_tokens":1}}`, m{Usage: prices.Usage{In: 2, CacheWrite: -1, CacheWrite1h: 2, Out: 1}}},
	} {
		d, ok := readDocument([]byte(c.body))
		if !ok {
			t.Errorf("%s: not read", name)
			continue
		}
		var b bill
		b.add(d.bill())
		if got := b.call(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
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
