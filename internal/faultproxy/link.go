package faultproxy

import (
	"bytes"
	"net"
	"sync"
)

// link is one client connection and the server connection behind it.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn

	mu     sync.Mutex
	losing *drop // replies are swallowed from here on

	tail []byte // last bytes of earlier requests: a match may cross packets
}

// requests forwards what the client sends and looks for the orders of DropReplyTo.
func (l *link) requests() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			l.proxy.wait()
			l.look(buf[:n])
			if _, werr := l.server.Write(buf[:n]); werr != nil {
				l.close()
				return
			}
		}
		if err != nil {
			l.server.CloseWrite() // the server may still answer what it was asked
			return
		}
	}
}

// replies forwards what the server sends, unless the reply is ordered to be lost.
func (l *link) replies() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if d := l.lost(); d != nil { // answered, or died of the request
			l.reset()
			close(d.done)
			return
		}
		if n > 0 {
			l.proxy.wait()
			if _, werr := l.client.Write(buf[:n]); werr != nil {
				l.close()
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
	}
}

// look takes the first order that the request bytes so far meet. It runs before
// the bytes are written, so the reply cannot overtake it.
func (l *link) look(b []byte) {
	seen := append(l.tail, b...)
	longest := 0
	p := l.proxy
	p.mu.Lock()
	for i, d := range p.drops {
		longest = max(longest, len(d.match))
		if bytes.Contains(seen, d.match) {
			p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			l.mu.Lock()
			l.losing = d
			l.mu.Unlock()
			break
		}
	}
	p.mu.Unlock()
	keep := min(len(seen), max(longest-1, 0))
	l.tail = bytes.Clone(seen[len(seen)-keep:])
}

func (l *link) lost() *drop {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losing
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

func (l *link) reset() {
	resetConn(l.client)
	resetConn(l.server)
}

// resetConn closes with RST: what the peer has not read yet is lost to it.
func resetConn(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// wait blocks while the proxy is stalled.
func (p *Proxy) wait() {
	p.mu.Lock()
	ch := p.gate.ch
	p.mu.Unlock()
	<-ch
}

// gate is a channel that is closed while bytes may pass.
type gate struct{ ch chan struct{} }

func newGate() *gate {
	g := &gate{ch: make(chan struct{})}
	close(g.ch)
	return g
}

func (g *gate) shut() {
	select {
	case <-g.ch:
		g.ch = make(chan struct{})
	default: // shut already
	}
}

func (g *gate) open() {
	select {
	case <-g.ch:
	default:
		close(g.ch)
	}
}
