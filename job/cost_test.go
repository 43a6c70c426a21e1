package job

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// priced is a run whose calls cost what the built-in table says.
func priced(t *testing.T, l ledger.Ledger) *Run {
	return testRun(t, l, func(c *RunConfig) {
		c.Price = func(call prices.Call) *ledger.Nano {
			cost, err := prices.Builtin().Cost(call)
			if err != nil {
				t.Log(err)
				return nil
			}
			return &cost
		}
	})
}

// cost is what is on record of one.
func cost(e ledger.Evidence) string {
	if e.Cost == nil {
		return "unknown" + e.CostSource
	}
	return fmt.Sprintf("%d %s", *e.Cost, e.CostSource)
}

// TestCost: what an answer cost is on record, as the model server has it on its bill by prices and
// counts of its own. The routes name a model that has no price; the answers name one.
func TestCost(t *testing.T) {
	ms := model(t, modelserver.Options{})
	asks := clients
	for _, route := range []string{"chat/completions", "responses"} {
		for _, tier := range []string{"flex", "priority"} {
			asks = append(asks, client{route + " " + tier, "openai", false, askTier(route, tier)})
		}
	}
	for i, c := range asks {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{}
			got := ask(t, priced(t, f), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				return c.ask(ctx, a.HTTP(), ms.URL())
			})
			if got.err != nil {
				t.Fatal(got.err)
			}
			want := fmt.Sprintf("%d computed", ms.Bill()[i].Price)
			if c.provider == "" {
				want = "unknown" // nobody's price list
			}
			if e := f.one(t).evidence; cost(e) != want {
				t.Errorf("cost %s, want %s; the bill says %+v", cost(e), want, ms.Bill()[i])
			}
		})
	}
	flex, all := ms.Bill()[len(clients)], ms.Bill()[0]
	if flex.Tier != "flex" || flex.Cached%2 == 0 || all.Reasoning == 0 || ms.Bill()[4].Written1h == 0 {
		t.Errorf("the bill has nothing to get wrong: %+v, %+v", flex, all)
	}
}

// askTier asks for a service tier, for a prompt of which an odd number of tokens is cached.
func askTier(route, tier string) func(context.Context, *http.Client, string) (said, error) {
	body := fmt.Sprintf(`{"model":"gpt-5-mini","service_tier":%q,"input":%q,"messages":[{"content":%[2]q}]}`, tier, strings.Repeat("word ", 100))
	if route == "responses" {
		body = strings.Replace(body, `"messages"`, `"unused"`, 1)
	} else {
		body = strings.Replace(body, `"input"`, `"unused"`, 1)
	}
	return func(ctx context.Context, h *http.Client, url string) (s said, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/"+route, strings.NewReader(body))
		if err != nil {
			return s, err
		}
		resp, err := h.Do(req)
		if err != nil {
			return s, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return s, err
	}
}

// TestCostOfEnds: only what was certainly billed, and in full, has a cost.
func TestCostOfEnds(t *testing.T) {
	const usage = `"model":"gpt-5-mini","usage":{"input_tokens":1000,"output_tokens":10}`
	start := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-haiku-4-5\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":1}}}\n\n"
	delta := "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n"
	stop := "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	for _, c := range []struct {
		name, provider, media, body string
		status                      int
		state                       ledger.AttemptState
		want                        string
	}{
		{"answered", "openai", "application/json", `{"id":"r","status":"completed","output":[],` + usage + `}`, 200, ledger.Received, "270000 computed"},
		{"answered without usage", "openai", "application/json", `{"id":"r","status":"completed","output":[],"model":"gpt-5-mini"}`, 200, ledger.Received, "unknown"},
		{"failed and billed", "openai", "application/json", `{"id":"r","status":"failed","error":{"message":"no"},` + usage + `}`, 200, ledger.FailedAttempt, "270000 computed"},
		{"failed", "openai", "application/json", `{"id":"r","status":"failed","error":{"message":"no"}}`, 200, ledger.FailedAttempt, "unknown"},
		{"refused", "openai", "application/json", `{"error":{"message":"no","type":"invalid_request_error"},` + usage + `}`, 400, ledger.Rejected, "unknown"},
		{"stream", "anthropic", "text/event-stream", start + delta + stop, 200, ledger.Received, "1045000 computed"},
		{"stream broken off", "anthropic", "text/event-stream", start + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", 200, ledger.FailedAttempt, "unknown"},
		{"stream cut", "anthropic", "text/event-stream", start + delta, 200, ledger.Sent, "unknown"},
		{"stream failed and billed", "openai", "text/event-stream", "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"service_tier\":\"auto\"}}\n\n" +
			"event: response.failed\ndata: {\"response\":{\"id\":\"r\",\"service_tier\":\"default\"," + usage + "}}\n\n", 200, ledger.FailedAttempt, "270000 computed"},
		{"the tier at the end counts", "openai", "text/event-stream", "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"service_tier\":\"auto\"}}\n\n" +
			"event: response.completed\ndata: {\"response\":{\"id\":\"r\",\"service_tier\":\"flex\"," + usage + "}}\n\n", 200, ledger.Received, "135000 computed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.media)
				w.Header().Set("X-Request-Id", "q")
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer srv.Close()
			f := &fake{}
			ask(t, priced(t, f), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				return askTier("responses", "default")(ctx, a.HTTP(), srv.URL)
			})
			row := f.one(t)
			if e := row.evidence; row.state != c.state || cost(e) != c.want {
				t.Errorf("%s, cost %s; want %s, %s", row.state, cost(e), c.state, c.want)
			}
		})
	}
}

// late is a ledger whose job is done already when an answer comes.
type late struct{ *fake }

func (l late) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	s, err := l.fake.Settle(ctx, id, e)
	s.Surplus = true
	return s, err
}

// outrun is a ledger to which somebody else has brought each answer already.
type outrun struct{ *fake }

func (o outrun) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	s, err := o.fake.Settle(ctx, id, e)
	s.Known = true
	return s, err
}

// TestSeenCost: who counts money is told what was booked, whether it was wasted, and nothing that is not
// on record.
func TestSeenCost(t *testing.T) {
	ms := model(t, modelserver.Options{})
	lost := &fake{onSettle: func(int, ledger.Evidence) error { return ledger.ErrRequest }}
	better := &fake{onSettle: func(int, ledger.Evidence) error { return ledger.ErrState }}
	for name, c := range map[string]struct {
		ledger ledger.Ledger
		want   string
	}{
		"booked": {&fake{}, "received, surplus false, cost known"}, "wasted": {late{&fake{}}, "received, surplus true, cost known"},
		"not on record":          {lost, "sent, surplus false, cost unknown"},
		"booked by another":      {outrun{&fake{}}, "received, surplus false, cost unknown"},
		"something better known": {better, "received, surplus false, cost unknown"},
	} {
		var seen []Seen
		j := priced(t, c.ledger)
		j.cfg.Saw = func(_ string, s Seen) { seen = append(seen, s) }
		ask(t, j, "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) { return askChat(ctx, a.HTTP(), ms.URL()) })
		if len(seen) != 1 {
			t.Fatalf("%s: told %+v", name, seen)
		}
		got := fmt.Sprintf("%s, surplus %t, cost %s", seen[0].State, seen[0].Surplus, map[bool]string{true: "known", false: "unknown"}[seen[0].Cost != nil])
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestFreeRoute: what costs nothing has that on record, and what was refused has no cost at all. Of
// what goes out under Sent otherwise nobody knows.
func TestFreeRoute(t *testing.T) {
	for _, c := range []struct {
		free bool
		err  error
		want string
	}{
		{true, nil, "0 computed"}, {false, nil, "unknown"}, {true, Retry(errBad), "unknown"},
	} {
		f := &fake{}
		calls(t, priced(t, f), Call[string, string]{Name: "c", Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute, Free: c.free,
			Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
				if err := a.Sent(ctx); err != nil {
					t.Error(err)
				}
				return in, c.err
			}}}}, "in")
		if e := f.one(t).evidence; cost(e) != c.want {
			t.Errorf("free %t, error %v: cost %s, want %s", c.free, c.err, cost(e), c.want)
		}
	}
}
