package modelserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// What a client can make of a fault. isAPI: the SDK gives its own error type.
func noAnswer(_ client, g got) bool { return g.err != nil && g.status == 0 && g.text == "" }

func resetByPeer(c client, g got) bool {
	return noAnswer(c, g) && errors.Is(g.err, syscall.ECONNRESET)
}

func status(n int) func(client, got) bool {
	return func(_ client, g got) bool { return g.status == n && !g.complete }
}

// refused is a status in the provider's own words, with its request id.
func refused(n int, openaiCode, anthropicType string) func(client, got) bool {
	return func(c client, g got) bool {
		if !status(n)(c, g) || !strings.HasPrefix(g.requestID, "req_") {
			return false
		}
		if c.plain {
			return strings.Contains(g.text, openaiCode)
		}
		return g.code == openaiCode || g.code == anthropicType
	}
}

// page is a status in a proxy's words, which no SDK can name.
func page(n int) func(client, got) bool {
	return func(c client, g got) bool { return status(n)(c, g) && g.code == "" && g.requestID == "" }
}

// cut: an error in mid-answer, with the object id known if events came before it.
func cut(c client, g got) bool {
	return g.err != nil && g.status == 0 && !g.complete && (!c.stream || c.plain || g.id != "" && g.text != "")
}

// cleanEnd is the trap: of a stream the SDKs report no error at all.
func cleanEnd(c client, g got) bool {
	if c.stream || c.plain {
		return g.err == nil && !g.complete && g.text != ""
	}
	return g.err != nil && g.status == 0
}

func streamError(c client, g got) bool {
	switch c.name {
	case "chat stream":
		return g.err != nil && g.id != "" && !g.complete
	case "responses stream": // the SDK reports no error
		return g.err == nil && g.code == "server_error" && g.out > 0 && !g.complete
	case "messages stream": // an API error of status 200
		return g.status == http.StatusOK && g.code == "overloaded_error" && g.id != "" && !g.complete
	case "net/http stream":
		return g.err == nil && strings.Contains(g.text, `"error"`) && !g.complete
	}
	return g.status == http.StatusInternalServerError
}

// html200 is a plain error to an SDK's call. To its streams it is no error: one that
// ends well, without an event.
func html200(c client, g got) bool {
	return (g.err == nil) == (c.stream || c.plain) && g.status == 0 && !g.complete && g.id == ""
}

func whole(_ client, g got) bool { return g.err == nil && g.complete }

var faults = []struct {
	fault  modelserver.Fault
	billed bool
	sees   func(client, got) bool
}{
	{modelserver.Fault{Kind: modelserver.Close}, true, noAnswer},
	{modelserver.Fault{Kind: modelserver.Close, Billed: new(false)}, false, noAnswer},
	{modelserver.Fault{Kind: modelserver.Reset}, true, resetByPeer},
	{modelserver.Fault{Kind: modelserver.Cut}, true, cut},
	{modelserver.Fault{Kind: modelserver.Cut, Events: 6}, true, cut},
	{modelserver.Fault{Kind: modelserver.CleanEnd}, true, cleanEnd},
	{modelserver.Fault{Kind: modelserver.CleanEnd, Events: 6}, true, cleanEnd},
	{modelserver.Fault{Kind: modelserver.StreamError}, true, streamError},
	{modelserver.Fault{Kind: modelserver.HTML200}, true, html200},
	{modelserver.Fault{Kind: modelserver.BadGateway}, true, page(502)},
	{modelserver.Fault{Kind: modelserver.BadGateway, Billed: new(false)}, false, page(502)},
	{modelserver.Fault{Kind: modelserver.GatewayTime}, true, page(504)},
	{modelserver.Fault{Kind: modelserver.BadRequest}, false, refused(400, "", "invalid_request_error")},
	{modelserver.Fault{Kind: modelserver.Unauthorized}, false, refused(401, "invalid_api_key", "authentication_error")},
	{modelserver.Fault{Kind: modelserver.Forbidden}, false, refused(403, "model_not_found", "permission_error")},
	{modelserver.Fault{Kind: modelserver.TimedOut}, false, refused(408, "request_timeout", "timeout_error")},
	{modelserver.Fault{Kind: modelserver.Conflict}, false, refused(409, "conflict", "conflict_error")},
	{modelserver.Fault{Kind: modelserver.TooLarge}, false, refused(413, "request_too_large", "request_too_large")},
	{modelserver.Fault{Kind: modelserver.RateLimit}, false, refused(429, "rate_limit_exceeded", "rate_limit_error")},
	{modelserver.Fault{Kind: modelserver.SpendLimit}, false, refused(429, "insufficient_quota", "rate_limit_error")},
	{modelserver.Fault{Kind: modelserver.ServerError}, false, refused(500, "server_error", "api_error")},
	{modelserver.Fault{Kind: modelserver.ServerError, Billed: new(true)}, true, refused(500, "server_error", "api_error")},
	{modelserver.Fault{Kind: modelserver.Overloaded}, false, refused(503, "server_is_overloaded", "overloaded_error")},
	{modelserver.Fault{Kind: modelserver.Unavailable}, false, page(503)},
	{modelserver.Fault{Kind: modelserver.Overloaded529}, false, refused(529, "server_is_overloaded", "overloaded_error")},
	{modelserver.Fault{Kind: modelserver.ResetUnread}, false, noAnswer},
}

// Every fault, on every route, by every client without retries: one request on
// the wire, a bill line if the model ran, and the client sees what it would see.
// The request after it is answered.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		name := string(f.fault.Kind)
		for _, c := range clients {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				ms := start(t, modelserver.Options{})
				ms.ScriptAny(f.fault)
				if g := c.ask(t.Context(), ms.URL(), noRetries()); !f.sees(c, g) {
					t.Errorf("client got %+v", g)
				}
				if n := ms.Requests(); n != 1 {
					t.Errorf("%d requests on the wire", n)
				}
				bill := ms.Bill()
				if got := len(bill) == 1; got != f.billed || len(bill) > 1 {
					t.Errorf("bill %+v", bill)
				}
				if f.billed && (bill[0].Delivered || bill[0].Fault != name || bill[0].Key != "acme:summarize:1") {
					t.Errorf("line %+v", bill[0])
				}
				if g := c.ask(t.Context(), ms.URL(), noRetries()); !whole(c, g) {
					t.Errorf("afterwards the client got %+v", g)
				}
			})
		}
	}
}

// Why paid calls need a guard: with an SDK's own retries one lost answer is paid
// for three times, and the last time it is given.
func TestDefaultRetriesPayThreeTimes(t *testing.T) {
	for _, c := range clients {
		if c.plain {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the SDKs wait between their tries
			ms := start(t, modelserver.Options{})
			ms.ScriptAny(modelserver.Fault{Kind: modelserver.Close, Times: 2})
			if g := c.ask(t.Context(), ms.URL(), options{}); !whole(c, g) {
				t.Errorf("client got %+v", g)
			}
			if n := len(ms.BillByKey()["acme:summarize:1"]); n != 3 || ms.Requests() != 3 {
				t.Errorf("%d requests, %d lines, want 3 of each", ms.Requests(), n)
			}
		})
	}
}

// A held answer is paid for; it goes out when it is released, and nowhere when its
// client left.
func TestHold(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			ms := start(t, modelserver.Options{})
			ms.ScriptAny(modelserver.Fault{Hold: true}, modelserver.Fault{Hold: true})
			first := func(l modelserver.Line) bool { return l.N == 1 }
			second := func(l modelserver.Line) bool { return l.N == 2 }

			answered := make(chan got, 1)
			go func() { answered <- c.ask(t.Context(), ms.URL(), noRetries()) }()
			wait(t, ms, first)
			if n := ms.Release("another:key"); n != 0 {
				t.Errorf("released %d of another key", n)
			}
			if n := ms.Release("acme:summarize:1"); n != 1 {
				t.Errorf("released %d", n)
			}
			if g := <-answered; !whole(c, g) {
				t.Errorf("client got %+v", g)
			}

			ctx, leave := context.WithCancel(t.Context())
			go func() { answered <- c.ask(ctx, ms.URL(), noRetries()) }()
			wait(t, ms, second)
			leave()
			if g := <-answered; !errors.Is(g.err, context.Canceled) {
				t.Errorf("client got %+v", g)
			}
			bill := ms.Bill()
			if len(bill) != 2 || !bill[0].Delivered || bill[1].Delivered || bill[1].Fault != "hold" {
				t.Errorf("bill %+v", bill)
			}
		})
	}
}

func wait(t *testing.T, ms *modelserver.Server, ok func(modelserver.Line) bool) modelserver.Line {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := ms.WaitFor(ctx, ok)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
