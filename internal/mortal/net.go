package mortal

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Net is a network of pipes, which servers listen on by name.
type Net struct {
	mu    sync.Mutex
	hosts map[string]*listener
}

func newNet() *Net { return &Net{hosts: map[string]*listener{}} }

// Listen makes a server's listener at host:port.
func (n *Net) Listen(addr string) net.Listener {
	l := &listener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = l
	return l
}

// Dial connects to a server. Where none listens the connection is refused.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[addr]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type listener struct {
	addr  string
	conns chan net.Conn
	done  chan struct{}
	close func()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error { l.close(); return nil }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.addr) }

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
