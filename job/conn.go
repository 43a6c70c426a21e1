package job

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// sendGate is an attempt's one way to the wire. It stands above TLS: the first
// application byte asks the ledger's gate, and whatever comes before it (names,
// dialling, proxies, handshakes) costs nothing and leaves no mark.
type sendGate struct {
	a   *Attempt
	ctx context.Context // the wire request's

	mu      sync.Mutex
	state   gateState
	conn    *gatedConn // the only one that may write once it is open
	left    bool       // the caller stopped waiting before the first byte
	cut     bool       // a write failed or was refused after the gate: the request is incomplete
	decided chan struct{}
}

type gateState int

const (
	gateIdle    gateState = iota // nothing was written
	gateAsking                   // the first write waits for the ledger
	gateOpen                     // the request is on its way
	gateRefused                  // nothing was written and nothing will be
)

var (
	errGateShut   = errors.New("PO360 the send gate is shut; nothing was written")
	errCallerLeft = errors.New("PO361 the caller stopped waiting before the request went out; nothing was sent")
)

func newSendGate(ctx context.Context, a *Attempt) *sendGate {
	return &sendGate{a: a, ctx: ctx, decided: make(chan struct{})}
}

// pass lets c write, or says why not.
func (g *sendGate) pass(c *gatedConn) error {
	g.mu.Lock()
	switch {
	case g.state == gateOpen && g.conn == c:
		g.mu.Unlock()
		return nil
	case g.state != gateIdle:
		g.cut = g.cut || c == g.conn
		g.mu.Unlock()
		return errGateShut
	}
	g.state = gateAsking
	g.mu.Unlock()

	err := g.ask()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.conn = gateOpen, c
	if err != nil {
		g.state, g.conn = gateRefused, nil
	}
	close(g.decided)
	return err
}

// ask goes through the ledger's gate, unless nobody wants it any more.
func (g *sendGate) ask() error {
	if err := context.Cause(g.ctx); err != nil {
		return err
	}
	if err := g.a.gate(g.ctx); err != nil {
		return err
	}
	switch {
	case g.abandoned():
		return g.a.unsent(g.ctx, "cancelled", errCallerLeft)
	case g.ctx.Err() != nil:
		return g.a.unsent(g.ctx, "cancelled", context.Cause(g.ctx))
	}
	return nil
}

// abandoned reports whether the caller stopped waiting.
func (g *sendGate) abandoned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left
}

// leave is called when nobody waits for the answer any more. Before the first byte it
// shuts the gate and reports so; later it changes nothing, since the request is paid for.
func (g *sendGate) leave() (shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	if g.state == gateIdle {
		g.state = gateRefused
		close(g.decided)
		return true
	}
	return false
}

// seal ends all writing, after the transport gave up, and reports whether the
// gate was opened. It waits for an answer of the ledger that is on its way.
func (g *sendGate) seal() (opened bool) {
	g.mu.Lock()
	if g.state == gateIdle {
		g.state = gateRefused
		close(g.decided)
	}
	g.mu.Unlock()
	<-g.decided
	g.mu.Lock()
	defer g.mu.Unlock()
	opened = g.state == gateOpen
	g.state = gateRefused
	return opened
}

// incomplete reports whether a part of the request certainly did not go out.
func (g *sendGate) incomplete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cut
}

// gatedConn is a connection whose first application byte asks the gate. It
// embeds the interface, so that no faster way to write shows through.
type gatedConn struct {
	net.Conn
	gate *sendGate
}

// Write writes nothing unless the gate is open.
func (c *gatedConn) Write(p []byte) (int, error) {
	if err := c.gate.pass(c); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil && n < len(p) {
		c.gate.mu.Lock()
		c.gate.cut = true
		c.gate.mu.Unlock()
	}
	return n, err
}

// stageError says how far a connection got, for the attempt's class.
type stageError struct {
	stage string // proxy or tls
	err   error
}

// Error names the stage.
func (e *stageError) Error() string { return e.stage + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *stageError) Unwrap() error { return e.err }

// defaultWire is the base of guarded transports where RunConfig.Wire is nil. Its
// TLS sessions are shared, since every attempt dials anew.
var defaultWire = &http.Transport{
	Proxy:               http.ProxyFromEnvironment,
	DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	TLSHandshakeTimeout: 10 * time.Second,
	TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(64)},
}

// newWire makes the wire of one request to target. Of base it takes the proxy, the TLS
// settings, the dialers and the limits of size; what limits times is the route's timeout.
func newWire(base *http.Transport, g *sendGate, target *url.URL) (*wire, error) {
	if base == nil {
		base = defaultWire
	}
	d := dialer{base: base, dial: base.DialContext, dialTLS: base.DialTLSContext}
	d.defaults()
	var err error
	d.proxy, err = proxyFor(base, target)
	return &wire{d, g}, err
}

// proxyFor is the proxy for a request, nil for none.
func proxyFor(base *http.Transport, target *url.URL) (*url.URL, error) {
	if base.Proxy == nil {
		return nil, nil
	}
	proxy, err := base.Proxy(&http.Request{Method: http.MethodPost, URL: target, Host: target.Host, Header: http.Header{}})
	if err != nil || proxy == nil {
		return nil, err
	}
	if !slices.Contains([]string{"http", "https"}, proxy.Scheme) {
		return nil, fmt.Errorf("PO362 proxy scheme %q cannot carry paid requests: use an http or https proxy, or dial through it in RunConfig.Wire", proxy.Scheme)
	}
	return proxy, nil
}
