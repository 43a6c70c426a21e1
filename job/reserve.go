package job

import (
	"encoding/json"
	"time"

	"github.com/paidonce/paidonce/prices"
)

const (
	// bytesPerToken is how few bytes of a request make a token, on average. English has 4; 2 leaves room for other
	// languages and for what is not text.
	bytesPerToken = 2
	// assumedOut is what a request may generate that does not say how much.
	assumedOut = 4096
	// maxReckoned bounds the requests that are looked into.
	maxReckoned = 4 << 20
)

// outputBound is what requests say of the tokens that they may be answered with: OpenAI's two names, that of
// Responses, and Anthropic's.
type outputBound struct {
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	MaxOutputTokens     int64 `json:"max_output_tokens"`
	N                   int64 `json:"n"`
}

// reckon holds back what the request may cost by its model's price, where the route does not say so itself and
// a price is known. It is what the job's budget is asked for, and what is at risk while the outcome is unknown.
func (a *Attempt) reckon(body []byte) {
	if a.spec.Reserve > 0 {
		return
	}
	var b outputBound
	if len(body) <= maxReckoned {
		_ = json.Unmarshal(body, &b) // what cannot be read says nothing
	}
	out := max(b.MaxTokens, b.MaxCompletionTokens, b.MaxOutputTokens)
	if out <= 0 {
		out = assumedOut
	}
	out = min(out, 1<<40) * min(max(b.N, 1), 1000)
	cost := a.run.cfg.Price(prices.Call{Provider: a.spec.Provider, Model: a.spec.Model, At: time.Now(),
		Usage: prices.Usage{In: int64(len(body)/bytesPerToken) + 1, Out: out}})
	if cost != nil {
		a.spec.Reserve = *cost
	}
}
