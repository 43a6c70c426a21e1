package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
)

// login makes a user and returns the bench's URL for it.
func (b *bench) login(name, password string) string {
	b.Helper()
	name += b.queue[len(b.queue)-6:] // users belong to the broker, not to the virtual host
	b.srv.User(b, b.url, name, password)
	u, err := url.Parse(b.url)
	if err != nil {
		b.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

// captured is a log that can be read while it is written.
type captured struct {
	mu sync.Mutex
	bytes.Buffer
}

func (c *captured) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Buffer.Write(p)
}

func (c *captured) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.String()
}

// hides checks that a text shows no form of the password.
func (b *bench) hides(what, text, password string) {
	b.Helper()
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password), strings.Split(password, "/")[0]} {
		if strings.Contains(text, form) {
			b.Errorf("%s shows the password as %q: %s", what, form, text)
		}
	}
}

// TestPasswordIsHidden plants a password and makes everything go wrong that can.
func TestPasswordIsHidden(t *testing.T) {
	t.Parallel()
	const password = "pl4nted/s:e@c%ret"
	b := newBench(t)
	log := &captured{}
	proxy, through := b.proxied()
	good := b.login("planted", password)
	r := b.open(func(c *rabbitmq.Config) { c.URL = good }, func(c *rabbitmq.Config) {
		through(c)
		u, _ := url.Parse(c.URL)
		g, _ := url.Parse(good)
		u.User = g.User
		c.URL = u.String()
	}, func(c *rabbitmq.Config) { c.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	b.worksAgain(r, "logged in")
	proxy.Refuse(true)
	proxy.Reset()
	b.eventually("an error of the connection", func() bool { return r.State().Reconnects[rabbitmq.NotConnected] > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.Publish(ctx, broker.Message{})
	b.is("publish", err, broker.ErrUnavailable)
	b.hides("an error", err.Error(), password)
	b.hides("State", r.State().LastError, password)
	b.hides("the log", log.text(), password)
	if !strings.Contains(log.text(), "broker connection lost") {
		t.Errorf("nothing was logged: %q", log.text())
	}

	for _, bad := range []string{
		"amqp://u:" + password + "@127.0.0.1/v", "amqp://u:pl4nted%zz@h/v", "http://u:pl4nted@h/v", "amqp://u:pl4nted@h:port/v",
		"amqp://u:pl4nted@h/v?heartbeat=x", "amqp://u:pl4nted@h/v?heartbeat=0", " amqp://u:pl4nted@h",
	} {
		_, err := rabbitmq.Open(t.Context(), rabbitmq.Config{URL: bad, Queue: "q"})
		b.is("open "+bad, err, rabbitmq.ErrConfig)
		if err != nil {
			b.hides("the error of a bad URL", err.Error(), password)
			b.hides("the error of a bad URL", err.Error(), "pl4nted")
		}
	}
}

// A callback gives the credentials, and they change between two connections. What
// it says in an error is not passed on with the password in it.
func TestCredentialsRotate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log := &captured{}
	var mu sync.Mutex
	user, password, fails := "", "first-s3cret", false
	login := func() {
		u, _ := url.Parse(b.login("rotating", password))
		user = u.User.Username()
	}
	login()
	r := b.open(func(c *rabbitmq.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		c.Credentials = func(context.Context) (string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			if fails {
				fails = false
				return "", password, errors.New("vault answered " + password)
			}
			return user, password, nil
		}
	})
	b.worksAgain(r, "first")
	mu.Lock()
	password, fails = "second-s3cret", true
	login()
	mu.Unlock()
	b.srv.CloseConnections(t, b.url)
	b.eventually("a failed attempt", func() bool { return r.State().Reconnects[rabbitmq.NotConnected] > 0 })
	b.worksAgain(r, "second")
	if text := log.text(); strings.Contains(text, "s3cret") || !strings.Contains(text, "vault answered ***") {
		t.Errorf("log: %s", text)
	}
}

// A wrong password is no proof of one: the driver says the same of a peer that
// drops the connection. It is tried again, and State shows it.
func TestWrongPasswordIsRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	password := "wrong"
	u, _ := url.Parse(b.login("retrier", "right"))
	r := b.open(func(c *rabbitmq.Config) {
		c.Credentials = func(context.Context) (string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			return u.User.Username(), password, nil
		}
	})
	if s := r.State(); s.Connected || !strings.Contains(s.LastError, "403") {
		t.Errorf("state with a wrong password: %+v", s)
	}
	mu.Lock()
	password = "right"
	mu.Unlock()
	b.worksAgain(r, "right at last")
}

// Case 75: handshakes that fail leave nothing behind.
func TestFailedHandshakesLeakNothing(t *testing.T) {
	b := newBench(t)
	r := b.open(func(c *rabbitmq.Config) { c.URL += "-which-is-not-there" })
	b.close(r)
	before := runtime.NumGoroutine()
	for range 200 {
		if err := r.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "530") {
			t.Fatalf("connect to a virtual host that does not exist: %v", err)
		}
	}
	proxy, through := b.proxied()
	conf := b.conf
	through(&conf)
	conf.URL += "?auth_mechanism=external" // which the broker does not offer: the driver leaves the socket open
	r = b.open(func(c *rabbitmq.Config) { *c = conf })
	b.close(r)
	if err := r.Dial(t.Context()); err == nil {
		t.Fatal("logged in by a mechanism that the broker does not offer")
	}
	for end := time.Now().Add(5 * time.Second); proxy.Conns() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d sockets are open after a failed handshake", proxy.Conns())
		}
	}
	b.eventually("goroutines are as many as before", func() bool { return runtime.NumGoroutine() <= before+5 })
}
