package job

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// count is a number of tokens from a provider. What is no whole number from 0 to
// maxCount is as good as absent: usage is never a reason to refuse an answer.
type count struct{ n *int64 }

// maxCount bounds one count, so that sums stay in range.
const maxCount = 1 << 40

// UnmarshalJSON never fails.
func (c *count) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && n >= 0 && n <= maxCount {
		c.n = &n
	}
	return nil
}

// word is a name from a provider.
type word string

// unreadable is a word that is no text. No price is known for it.
const unreadable = "unreadable"

// UnmarshalJSON never fails.
func (w *word) UnmarshalJSON(b []byte) error {
	var s *string
	if json.Unmarshal(b, &s) != nil {
		*w = unreadable
	} else if s != nil {
		*w = word(*s)
	}
	return nil
}

// details is the breakdown of a count.
type details struct {
	Cached    count `json:"cached_tokens"`
	Written   count `json:"cache_write_tokens"`
	Audio     count `json:"audio_tokens"`
	Reasoning count `json:"reasoning_tokens"`
	Thinking  count `json:"thinking_tokens"` // Anthropic's reasoning
}

// tally is usage as the providers give it. A later one is laid over an earlier
// one: streams report it in pieces, each cumulative.
type tally struct {
	// OpenAI chat, and most that speak its language. Prompt includes cached.
	Prompt            count   `json:"prompt_tokens"`
	Completion        count   `json:"completion_tokens"`
	PromptDetails     details `json:"prompt_tokens_details"`
	CompletionDetails details `json:"completion_tokens_details"`
	// OpenAI responses: Input includes cached, and Anthropic: it does not.
	Input         count   `json:"input_tokens"`
	Output        count   `json:"output_tokens"`
	InputDetails  details `json:"input_tokens_details"`
	OutputDetails details `json:"output_tokens_details"`
	CacheRead     count   `json:"cache_read_input_tokens"`
	CacheWrite    count   `json:"cache_creation_input_tokens"`
	CacheSplit    struct {
		Short count `json:"ephemeral_5m_input_tokens"`
		Hour  count `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Tools struct {
		Searches count `json:"web_search_requests"`
	} `json:"server_tool_use"`
	Tier  word `json:"service_tier"`
	Speed word `json:"speed"`
	Geo   word `json:"inference_geo"`
	// Bedrock Converse: as Anthropic.
	AWSInput  count `json:"inputTokens"`
	AWSOutput count `json:"outputTokens"`
	AWSRead   count `json:"cacheReadInputTokens"`
	AWSWrite  count `json:"cacheWriteInputTokens"`
	// Gemini: the prompt includes cached, the candidates leave thoughts out.
	GeminiPrompt   count `json:"promptTokenCount"`
	GeminiCached   count `json:"cachedContentTokenCount"`
	GeminiOutput   count `json:"candidatesTokenCount"`
	GeminiThoughts count `json:"thoughtsTokenCount"`
	GeminiTools    count `json:"toolUsePromptTokenCount"`
	GeminiTraffic  word  `json:"trafficType"`
}

// add lays a later tally over t.
func (t *tally) add(n *tally) {
	if n == nil {
		return
	}
	from := n.counts()
	for i, c := range t.counts() {
		if from[i].n != nil {
			c.n = from[i].n
		}
	}
	words := n.words()
	for i, w := range t.words() {
		if *words[i] != "" {
			*w = *words[i]
		}
	}
}

func (t *tally) counts() []*count {
	cs := []*count{
		&t.Prompt, &t.Completion, &t.Input, &t.Output, &t.CacheRead, &t.CacheWrite, &t.CacheSplit.Short, &t.CacheSplit.Hour, &t.Tools.Searches,
		&t.AWSInput, &t.AWSOutput, &t.AWSRead, &t.AWSWrite,
		&t.GeminiPrompt, &t.GeminiCached, &t.GeminiOutput, &t.GeminiThoughts, &t.GeminiTools,
	}
	for _, d := range []*details{&t.PromptDetails, &t.CompletionDetails, &t.InputDetails, &t.OutputDetails} {
		cs = append(cs, &d.Cached, &d.Written, &d.Audio, &d.Reasoning, &d.Thinking)
	}
	return cs
}

func (t *tally) words() []*word { return []*word{&t.Tier, &t.Speed, &t.Geo, &t.GeminiTraffic} }

// parts is usage that has the same form for every provider. In is everything that was read,
// cached or not, Out everything that was generated, reasoning included; the rest are parts of
// these. Nil is unknown.
type parts struct{ in, read, written, written1h, out, reasoning *int64 }

// parts normalises.
func (t *tally) parts() parts {
	switch {
	case t.Prompt.n != nil || t.Completion.n != nil:
		return parts{in: t.Prompt.n, read: t.PromptDetails.Cached.n, written: t.PromptDetails.Written.n,
			out: t.Completion.n, reasoning: t.CompletionDetails.Reasoning.n}
	case t.CacheRead.n != nil || t.CacheWrite.n != nil || t.CacheSplit.Short.n != nil || t.CacheSplit.Hour.n != nil:
		written := t.CacheWrite
		if split := plus(count{new(int64)}, t.CacheSplit.Short, t.CacheSplit.Hour); written.n == nil {
			written.n = split
		}
		return parts{in: plus(t.Input, t.CacheRead, written), read: t.CacheRead.n, written: minus(written, t.CacheSplit.Hour),
			written1h: t.CacheSplit.Hour.n, out: t.Output.n, reasoning: t.OutputDetails.Thinking.n}
	case t.Input.n != nil || t.Output.n != nil:
		return parts{in: t.Input.n, read: t.InputDetails.Cached.n, written: t.InputDetails.Written.n,
			out: t.Output.n, reasoning: first(t.OutputDetails.Reasoning, t.OutputDetails.Thinking)}
	case t.AWSInput.n != nil || t.AWSOutput.n != nil:
		return parts{in: plus(t.AWSInput, t.AWSRead, t.AWSWrite), read: t.AWSRead.n, written: t.AWSWrite.n, out: t.AWSOutput.n}
	}
	return parts{in: t.GeminiPrompt.n, read: t.GeminiCached.n, out: plus(t.GeminiOutput, t.GeminiThoughts), reasoning: t.GeminiThoughts.n}
}

// usage is what the ledger keeps. What was written to a cache is dearer, not cheaper, and
// stays in In.
func (t *tally) usage() ledger.Usage {
	p := t.parts()
	return ledger.Usage{In: p.in, Cached: p.read, Out: p.out}
}

// plus adds what is known to a count; the sum of an unknown one is unknown.
func plus(c count, more ...count) *int64 {
	if c.n == nil {
		return nil
	}
	sum := *c.n
	for _, m := range more {
		sum += known(m.n)
	}
	return &sum
}

// minus takes what is known off a count.
func minus(c, less count) *int64 {
	if c.n == nil {
		return nil
	}
	return new(*c.n - known(less.n))
}

// first is the first count that is known.
func first(cs ...count) *int64 {
	for _, c := range cs {
		if c.n != nil {
			return c.n
		}
	}
	return nil
}

func known(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// bill is what the cost of an answer depends on, as the answer has it.
type bill struct {
	model string // that answered; "": the answer does not say
	tier  word   // OpenAI names it beside the usage
	tally tally
}

// add lays a later bill over b.
func (b *bill) add(n bill) {
	if n.model != "" {
		b.model = n.model
	}
	if n.tier != "" {
		b.tier = n.tier
	}
	b.tally.add(&n.tally)
}

// told reports whether the answer says how much was read and generated.
func (b *bill) told() bool {
	p := b.tally.parts()
	return p.in != nil && p.out != nil
}

// call is for a price; who asked is still to be filled in.
func (b *bill) call() prices.Call {
	p := b.tally.parts()
	return prices.Call{Answered: b.model, NoUsage: !b.told(), Usage: prices.Usage{
		In: known(p.in), CacheRead: known(p.read), CacheWrite: known(p.written), CacheWrite1h: known(p.written1h),
		Out: known(p.out), Reasoning: known(p.reasoning), Terms: b.terms()}}
}

// usual are words for what the plain price is for.
var usual = []word{"", "default", "standard", "global", "not_available", "on_demand"}

// terms are what else the price depends on: how it was served, and what has prices of its own.
func (b *bill) terms() (all []string) {
	t := &b.tally
	for _, w := range append([]*word{&b.tier}, t.words()...) {
		if w := word(strings.ToLower(clean(string(*w), maxID))); !slices.Contains(usual, w) && !slices.Contains(all, string(w)) {
			all = append(all, string(w))
		}
	}
	for name, n := range map[string]int64{
		"audio":        known(t.PromptDetails.Audio.n) + known(t.CompletionDetails.Audio.n),
		"web_search":   known(t.Tools.Searches.n),
		"tool_prompts": known(t.GeminiTools.n),
	} {
		if n > 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
