// Package faultproxy is a TCP proxy for tests that breaks connections on order:
// between a driver and its server it loses replies, stalls, cuts and resets.
//
//	p := faultproxy.Start(t, "127.0.0.1:5432")
//	client := dial(p.Addr())
//	lost := p.DropReplyTo([]byte("commit"))
//	err := client.Commit() // the server commits, the client never hears of it
//	<-lost
package faultproxy

import (
	"net"
	"sync"
	"testing"
)

// Proxy forwards connections to one target until it is told to misbehave. Its
// methods may be called at the same time and at any time.
type Proxy struct {
	ln net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	target  string
	links   map[*link]struct{}
	gate    *gate   // holds bytes back while stalled
	refuse  bool    // new connections are reset at once
	drops   []*drop // orders not yet met
	closed  bool
	dialled int
}

// drop is one order of DropReplyTo.
type drop struct {
	match []byte
	done  chan struct{}
}

// Start listens on a free loopback port and forwards to target ("host:port"). It
// stops with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the fault proxy: %v", err)
	}
	p := &Proxy{target: target, ln: ln, links: map[*link]struct{}{}, gate: newGate()}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect, as "host:port".
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Retarget forwards new connections to another target, as a name does after a failover.
// Live ones go on; call Cut or Reset for those.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Conns counts the live connections.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted counts the connections made since the start, refused ones included.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialled
}

// Cut closes every live connection in the orderly way (FIN), on both sides. New
// connections work.
func (p *Proxy) Cut() { p.drop((*link).close) }

// Reset breaks every live connection with a TCP reset, on both sides. New
// connections work.
func (p *Proxy) Reset() { p.drop((*link).reset) }

// Refuse resets new connections as soon as they are made, while on is true. Live
// ones go on; call Cut or Reset for those.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Stall holds back every byte in both directions, of live and of new connections,
// as a network does that drops packets. Nothing is lost: Resume delivers it.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.shut()
}

// Resume ends Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.open()
}

// DropReplyTo waits for the next request that contains match, on any connection,
// passes it on whole, and swallows everything that the server answers on
// that connection from then on. Once the server has answered, both sides
// are reset, and the returned channel is closed. One order drops one reply.
//
// What is matched are bytes on the wire, across packet borders. A request that is
// pipelined behind the matching one in the same packet is passed on too.
func (p *Proxy) DropReplyTo(match []byte) <-chan struct{} {
	d := &drop{match: match, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return // closed with the test
		}
		client := c.(*net.TCPConn)
		p.mu.Lock()
		p.dialled++
		refuse := p.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			resetConn(client)
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	s, err := net.Dial("tcp", target)
	if err != nil {
		resetConn(client) // what a client sees of a server that is down
		return
	}
	l := &link{proxy: p, client: client, server: s.(*net.TCPConn)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.close()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(l.requests)
	both.Go(l.replies)
	both.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) drop(how func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		how(l)
	}
}

func (p *Proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	p.closed = true
	p.gate.open()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
