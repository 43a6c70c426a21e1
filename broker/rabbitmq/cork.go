package rabbitmq

import (
	"net"
	"sync"
)

// maxKept bounds what a corked connection keeps, in bytes.
const maxKept = 16 << 10

// corkConn writes several things in one go while it is corked. The driver writes each ack by itself, and each would be a
// system call, a packet, and something to wake the broker for. TLS, if there is any, is the driver's, above it: each ack is a
// record of its own then, but they leave together all the same.
//
// What is written while it is corked, by whomever, keeps its order and leaves with the rest. Whoever corks it uncorks it soon.
type corkConn struct {
	net.Conn

	mu     sync.Mutex // held while it writes
	corked bool
	kept   []byte
	err    error // of a write. Others were told that theirs went well, so nothing goes after it
}

// cork begins to keep what is written.
func (c *corkConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

// uncork writes what was kept. An error says that some of it, of whoever wrote it, may not have been written.
func (c *corkConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.flush()
}

func (c *corkConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if !c.corked {
		n, err := c.Conn.Write(p)
		c.err = err
		return n, err
	}
	c.kept = append(c.kept, p...)
	if len(c.kept) >= maxKept {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush writes what was kept. The lock is held.
func (c *corkConn) flush() error {
	if len(c.kept) > 0 {
		_, c.err = c.Conn.Write(c.kept)
	}
	c.kept = c.kept[:0]
	return c.err
}
