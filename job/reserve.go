package job

import (
	"encoding/json"
	"time"

	"github.com/paidonce/paidonce/prices"
)

const (
	// bytesPerToken is how few bytes of a request make a token, on average. English has 4; 2 leaves room for other
	// languages.
	bytesPerToken = 2
	// embedded is how long a run of base64 is that is no text but a picture or a file, and tokensPerFile what
	// one is reckoned with, and one more token for each 100 bytes of it.
	embedded      = 4096
	tokensPerFile = 2000
	// assumedOut is what a request may generate that does not say how much.
	assumedOut = 4096
	// most bounds the tokens of one request, in or out: what says more is nonsense.
	most = 10_000_000
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
// a price is known. It is what the job's budget is asked for, and what is at risk while the outcome is unknown. What a request
// names and does not carry (files, earlier responses) is not in it.
func (a *Attempt) reckon(body []byte) {
	if a.spec.Reserve > 0 {
		return
	}
	var b outputBound
	_ = json.Unmarshal(body, &b) // what cannot be read says nothing
	out := max(b.MaxTokens, b.MaxCompletionTokens, b.MaxOutputTokens)
	if out <= 0 {
		out = assumedOut
	}
	out = min(min(out, most)*min(max(b.N, 1), 1000), most)
	cost := a.run.cfg.Price(prices.Call{Provider: a.spec.Provider, Model: a.spec.Model, At: time.Now(),
		Usage: prices.Usage{In: min(tokens(body), most), Out: out}})
	if cost != nil {
		a.spec.Reserve = *cost
	}
}

// tokens is about how many a request has, rather more than fewer.
func tokens(body []byte) int64 {
	text, files, n := len(body), 0, 0
	end := func() {
		if n >= embedded {
			text -= n
			files += tokensPerFile + n/100
		}
		n = 0
	}
	for _, c := range body {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' || c == '-' || c == '_' {
			n++
		} else {
			end()
		}
	}
	end()
	return int64(text/bytesPerToken + files + 1)
}
