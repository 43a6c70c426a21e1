package modelserver

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// exchange is one request that was read and understood, until it is answered.
type exchange struct {
	server    *Server
	w         http.ResponseWriter
	ctx       context.Context
	req       Request
	key       string
	requestID string
}

// serve takes the request through its fault. An error is one of the bill.
func (x exchange) serve(f Fault) error {
	s := x.server
	if !s.sleep(x.ctx, f.Before) {
		return nil
	}
	released, forget := s.holds.add(x.key, f.Hold) // before the bill line: who sees that may release
	defer forget()
	hold := func() {
		select {
		case <-released:
		case <-x.ctx.Done():
		case <-s.done:
		}
	}
	d := delivery{w: x.w, ctx: x.ctx, fault: f, hold: hold}
	if f.billed() {
		g := newGeneration(x.req, x.requestID, s.opt.Generate(x.req))
		n, err := s.bill.add(x.line(g, f))
		if err != nil {
			return err
		}
		s.stored.add(g)
		d.answer, d.settled = g.answer(), func(done bool) error { return s.bill.delivery(n, done) }
	}
	if !x.req.Stream || f.Events == 0 {
		hold()
	}
	if !s.sleep(x.ctx, s.opt.Latency+f.After) {
		return nil
	}
	return x.end(f, d)
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
		In: g.usage.in, Cached: g.usage.cached, Out: g.usage.out, Price: price(x.req.Model, g.usage),
		Fault: f.name(),
	}
}

// holds are the answers that wait for Release, by key.
type holds struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{}
}

// add registers a hold and returns what ends it, and how to forget it. Without a
// hold the channel is closed at once.
func (h *holds) add(key string, hold bool) (released <-chan struct{}, forget func()) {
	c := make(chan struct{})
	if !hold {
		close(c)
		return c, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting[key] = append(h.waiting[key], c)
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting[key] = slices.DeleteFunc(h.waiting[key], func(o chan struct{}) bool { return o == c })
	}
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
