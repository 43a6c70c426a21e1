package mortal

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/paidonce/paidonce/job"
)

// Net is a network of pipes, which servers listen on by name.
type Net struct {
	mu    sync.Mutex
	hosts map[string]*listener
}

func newNet() *Net { return &Net{hosts: map[string]*listener{}} }

// Conn is a server's end of a connection.
type Conn struct {
	net.Conn
	From    *Node  // the worker that dialled; nil: not known, or nobody's
	Attempt string // whose request it is for, by its ID; "": of none
	To      string // host:port, as it was dialled
}

// Anywhere is the address of a listener for what is dialled and has no other.
const Anywhere = "*"

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
func (n *Net) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	return n.connect(ctx, &Conn{To: addr})
}

// DialFree connects a worker to a server for a request of no attempt.
func (n *Net) DialFree(ctx context.Context, from *Node, addr string) (net.Conn, error) {
	c, err := n.connect(ctx, &Conn{From: from, To: addr})
	if err != nil || from == nil {
		return c, err
	}
	return conn{c, from}, nil
}

func (n *Net) connect(ctx context.Context, c *Conn) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[c.To]
	if l == nil {
		l = n.hosts[Anywhere]
	}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: address(c.To), Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	var ours net.Conn
	ours, c.Conn = net.Pipe()
	select {
	case l.conns <- c:
		return ours, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial connects a worker's attempt.
func (n *Node) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	c, err := n.net.connect(ctx, &Conn{From: n, Attempt: job.DialsFor(ctx), To: addr})
	if err != nil {
		return nil, err
	}
	return conn{c, n}, nil
}

// conn is a worker's end of a connection: it reads nothing while the worker is frozen.
type conn struct {
	net.Conn
	n *Node
}

// Read implements net.Conn.
func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.runs()
	return n, err
}

// Write implements net.Conn.
func (c conn) Write(p []byte) (int, error) {
	c.n.runs()
	return c.Conn.Write(p)
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
