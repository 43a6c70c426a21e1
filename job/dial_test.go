package job

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// TestDialsFor: a dialer is told whose request it connects for, of polls as well, and whatever headers the request has.
func TestDialsFor(t *testing.T) {
	var dialled []string
	wire := func(c *RunConfig) {
		c.Wire = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = append(dialled, DialsFor(ctx)) // one after the other
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer srv.Close()
	effect := func(t *testing.T) *Attempt {
		return ask(t, testRun(t, &fake{}, wire), "shop", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
			return keyed(ctx, a.Effect(), srv.URL)
		}).attempt
	}
	named := func(t *testing.T) *Attempt {
		return ask(t, testRun(t, &fake{}, wire), "shop", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, nil)
			if err != nil {
				return "", err
			}
			req.Header.Set("X-Client-Request-Id", "mine")
			resp, err := a.HTTP().Do(req)
			if err != nil {
				return "", err
			}
			return "", resp.Body.Close()
		}).attempt
	}
	polled := func(t *testing.T) *Attempt {
		ms := model(t, modelserver.Options{})
		ms.ScriptAny(modelserver.Fault{After: 600 * time.Millisecond})
		return background(t, &fake{}, ms, 30*time.Second, wire).attempt
	}
	for name, c := range map[string]struct {
		ask   func(*testing.T) *Attempt
		least int
	}{"an effect": {effect, 1}, "a request with a name of its own": {named, 1}, "polls": {polled, 2}} {
		t.Run(name, func(t *testing.T) {
			dialled = nil
			a := c.ask(t)
			if len(dialled) < c.least {
				t.Fatalf("dialled %d times", len(dialled))
			}
			for _, id := range dialled {
				if id != a.ID() {
					t.Errorf("dialled for %q, want %q", id, a.ID())
				}
			}
		})
	}
	if id := DialsFor(t.Context()); id != "" {
		t.Errorf("a context of no attempt is that of %q", id)
	}
}
