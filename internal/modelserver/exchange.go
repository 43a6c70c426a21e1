package modelserver

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// exchange is one request that was read and understood, until it is answered.
type exchange struct {
	server    *Server
	w         http.ResponseWriter
	r         *http.Request
	req       Request
	key       string
	requestID string
}

// serve takes the request through its fault. An error is one of the bill.
func (x exchange) serve(f Fault) error {
	s := x.server
	if !s.sleep(x.r.Context(), f.Before) {
		return nil
	}
	released := s.holds.add(x.key, f.Hold) // before the bill line: who sees that may release
	d := delivery{w: x.w, r: x.r, fault: f, hold: func() bool { return s.wait(x.r.Context(), released) }}
	finish := func() {}
	if f.billed() {
		g := s.newAnswer(x.req, x.requestID)
		n, err := s.bill.add(x.line(g, f))
		if err != nil {
			return err
		}
		finish = s.stored.begin(g, f)
		d.answer, d.settled = g.answer(), func(done bool) error { return s.bill.delivery(n, done) }
	}
	gate := released
	if x.req.Stream && f.Events > 0 {
		gate = nil // held in mid-stream, by the delivery
	}
	finished := s.work(gate, s.opt.Latency+f.After, finish)
	if !x.req.queued() && !s.wait(x.r.Context(), finished) {
		return nil
	}
	return x.end(f, d)
}

// work is the model at work: until it is released (nil: at once) and d has passed,
// whether or not its client stays. Then it finishes and closes the channel.
func (s *Server) work(released <-chan struct{}, d time.Duration, finish func()) <-chan struct{} {
	finished := make(chan struct{})
	end := func() {
		finish()
		close(finished)
	}
	if released == nil && d == 0 {
		end()
		return finished
	}
	s.active.Go(func() { // the caller is active, so Close is still waiting
		if (released == nil || s.wait(context.Background(), released)) && s.sleep(context.Background(), d) {
			end()
		}
	})
	return finished
}

// end is what the client sees.
func (x exchange) end(f Fault, d delivery) error {
	for k, v := range f.Header {
		x.w.Header().Set(k, v)
	}
	if f.Kind == StreamError && !x.req.Stream {
		f.Kind = ServerError
	}
	if no, ok := refusals[f.Kind]; ok {
		refuse(x.w, x.req.Provider, x.requestID, f, no)
		return nil
	}
	if status, ok := pages[f.Kind]; ok {
		page(x.w, status)
		return nil
	}
	if f.Kind == Close || f.Kind == Reset {
		cutConnection(x.w, f.Kind == Reset)
		return nil
	}
	return d.run()
}

func (x exchange) line(g *generation, f Fault) Line {
	return Line{
		Key: x.key, PromptKey: x.req.PromptKey(), MetadataKey: x.req.MetadataKey(), ClientID: x.req.ClientID(),
		Provider: x.req.Provider, Route: x.req.Route, Model: x.req.Model, Stream: x.req.Stream,
		RequestID: x.requestID, ObjectID: g.id,
		Tier: g.tier(), In: g.usage.in, Cached: g.usage.cached, Written: g.usage.written, Written1h: g.usage.written1h,
		Out: g.usage.out, Reasoning: g.usage.reasoning, Price: price(x.req.Model, g.tier(), g.usage),
		Fault: f.name(),
	}
}

// holds are the answers that wait for Release, by key.
type holds struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{}
}

// add registers a hold and returns what ends it; nil without one.
func (h *holds) add(key string, hold bool) <-chan struct{} {
	if !hold {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.waiting[key] = append(h.waiting[key], c)
	return c
}

func (h *holds) release(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.waiting[key])
	for _, c := range h.waiting[key] {
		close(c)
	}
	delete(h.waiting, key)
	return n
}
