package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// dialLimit bounds TCP, TLS and AMQP handshake together. A wrong password takes
	// RabbitMQ 3 s.
	dialLimit = 10 * time.Second
	// callLimit bounds one request to the broker on a channel.
	callLimit = 20 * time.Second
)

// errSilent is why a link was cut that did not answer.
var errSilent = errors.New("no answer in time")

// link is one connection. Its driver knows no context and can block inside
// its own locks; closing the socket under it ends every call it has.
type link struct {
	conn    *amqp.Connection
	socket  net.Conn
	cork    *corkConn // what the driver writes to, or its TLS
	watch   func()    // ends the bound on the handshake
	closed  chan *amqp.Error
	blocked chan amqp.Blocking
	version string // "3.10.8"
}

// dial opens a connection. role is part of its name: "consumer", "publisher".
func (b *Broker) dial(ctx context.Context, role string) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialLimit, errSilent)
	defer cancel()
	l := &link{watch: func() {}, closed: make(chan *amqp.Error, 1), blocked: make(chan amqp.Blocking, 16)}
	conf := amqp.Config{
		Heartbeat: b.cfg.beat,
		// The driver writes into both, so each connection has its own.
		Properties:      amqp.Table{"product": "paidonce", "connection_name": b.cfg.Name + " " + role},
		TLSClientConfig: b.cfg.tls(),
		Locale:          "en_US",
		Dial: func(network, addr string) (net.Conn, error) {
			return l.connect(ctx, network, addr, 2*b.cfg.beat)
		},
	}
	if b.cfg.Credentials != nil {
		user, password, err := b.cfg.Credentials(ctx)
		b.cfg.secrets.add(password)
		if err != nil {
			return nil, b.cfg.secrets.error(fmt.Errorf("credentials for %s: %w", b.cfg.address(), err))
		}
		conf.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}
	}
	conn, err := amqp.DialConfig(b.cfg.URL, conf)
	l.watch()
	if err != nil {
		l.kill() // the driver leaves the socket open after some failed handshakes
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, b.cfg.secrets.error(fmt.Errorf("connect to %s: %w", b.cfg.address(), err))
	}
	l.conn = conn
	l.version, _ = conn.Properties["version"].(string)
	conn.NotifyClose(l.closed)
	conn.NotifyBlocked(l.blocked)
	return l, nil
}

// connect makes the socket. ctx bounds the handshakes on it too.
func (l *link) connect(ctx context.Context, network, addr string, writeLimit time.Duration) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.socket = c
	if err := c.SetDeadline(time.Now().Add(dialLimit)); err != nil { // the driver clears it after the handshake
		return nil, err
	}
	stop := context.AfterFunc(ctx, l.kill)
	l.watch = func() { stop() }
	l.cork = &corkConn{Conn: &deadlineConn{Conn: c, limit: writeLimit}}
	return l.cork, nil
}

// kill ends the link at once, whatever its driver is doing.
func (l *link) kill() {
	if l.socket != nil {
		l.socket.Close()
	}
}

// do runs one or more calls to the driver. If they do not end in limit or before
// ctx does, the link is cut under them. It returns when they have.
func (l *link) do(ctx context.Context, limit time.Duration, calls func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	stop := context.AfterFunc(ctx, l.kill)
	err := calls()
	if !stop() {
		return fmt.Errorf("cut the connection: %w", context.Cause(ctx))
	}
	return err
}

// channelLost is the end of a channel. A dying connection takes its channels with it,
// and a session that was busy finds both ends at once.
func (l *link) channelLost(e *amqp.Error) error {
	if l.conn.IsClosed() {
		return lost(LostConnection, e)
	}
	return lost(LostChannel, e)
}

// close ends the link politely if that works before ctx ends, which must have a
// deadline.
func (l *link) close(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	done := make(chan struct{})
	go func() {
		l.conn.CloseDeadline(deadline) // an error says that it was closed already
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	l.kill()
}

// deadlineConn bounds every write. Without it a write into a full socket holds
// the driver's lock, and the heartbeat that would notice waits for that lock.
type deadlineConn struct {
	net.Conn
	limit time.Duration

	mu    sync.Mutex
	until time.Time // set by the owner; zero: none
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	d := time.Now().Add(c.limit)
	c.mu.Lock()
	if !c.until.IsZero() && c.until.Before(d) {
		d = c.until
	}
	c.mu.Unlock()
	if err := c.Conn.SetWriteDeadline(d); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SetDeadline sets both deadlines, as net.Conn does.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.until = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline sets a deadline that a later Write does not push out.
func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.until = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// tls returns a configuration of its own for one connection; nil lets the driver
// make one from the URL's parameters.
func (s *settings) tls() *tls.Config {
	if s.TLS == nil {
		return nil
	}
	c := s.TLS.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// address is the broker's for logs and errors: no user, no password.
func (s *settings) address() string {
	return fmt.Sprintf("%s://%s vhost %q", s.uri.Scheme, net.JoinHostPort(s.uri.Host, strconv.Itoa(s.uri.Port)), s.uri.Vhost)
}

// major is the first number of a version, 0 if there is none.
func major(version string) int {
	n, _, _ := strings.Cut(version, ".")
	v, err := strconv.Atoi(n)
	if err != nil {
		return 0
	}
	return v
}
