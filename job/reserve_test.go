package job

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// TestReserve: what a request may cost is held back by its model's price. gpt-5-mini: 0.25 and 2 dollars a million tokens.
func TestReserve(t *testing.T) {
	ms := model(t, modelserver.Options{})
	padded := func(bytes int, more string) string {
		body := `{"model":"gpt-5-mini","messages":[{"role":"user","content":"` + "%" + `"}]` + more + `}`
		return strings.Replace(body, "%", strings.Repeat("x", bytes-len(body)+1), 1)
	}
	for name, c := range map[string]struct {
		provider, body string
		own            ledger.Nano
		want           ledger.Nano
	}{
		"bounded":           {"openai", padded(1998, `,"max_completion_tokens":100`), 0, 1000*250 + 100*2000},
		"the older name":    {"openai", padded(1998, `,"max_tokens":100`), 0, 1000*250 + 100*2000},
		"several choices":   {"openai", padded(1998, `,"max_tokens":100,"n":3`), 0, 1000*250 + 300*2000},
		"unbounded":         {"openai", padded(1998, ""), 0, 1000*250 + 4096*2000},
		"nonsense":          {"openai", padded(1998, `,"max_tokens":-5,"n":-5`), 0, 1000*250 + 4096*2000},
		"not a number":      {"openai", padded(1998, `,"max_tokens":"many"`), 0, 1000*250 + 4096*2000},
		"the route's own":   {"openai", padded(1998, ""), 7, 7},
		"no price is known": {"somebody", padded(1998, ""), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			c2 := Call[string, string]{Name: "ask", Routes: []Route[string, string]{{Name: "only", Provider: c.provider, Model: "gpt-5-mini", Timeout: time.Minute, Reserve: c.own,
				Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, ms.URL()+"/v1/chat/completions", strings.NewReader(in))
					if err != nil {
						return "", err
					}
					resp, err := a.HTTP().Do(req)
					if err == nil {
						err = resp.Body.Close()
					}
					return "", err
				}}}}
			j := priced(t, f)
			j.calls = map[string]CallInfo{"ask": c2.info()}
			if _, err := c2.Run(t.Context(), j, c.body); err != nil {
				t.Log(err)
			}
			if got := f.one(t).Reserve; got != c.want {
				t.Errorf("held back %d, want %d", got, c.want)
			}
		})
	}
}
