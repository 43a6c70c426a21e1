package faultproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/faultproxy"
)

// server answers each line "x" with "re:x" and remembers what it was asked.
type server struct {
	ln   net.Listener
	mu   sync.Mutex
	seen []string
}

func serve(t *testing.T) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.answer(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return s
}

func (s *server) answer(c net.Conn) {
	defer c.Close()
	for sc := bufio.NewScanner(c); sc.Scan(); {
		s.mu.Lock()
		s.seen = append(s.seen, sc.Text())
		s.mu.Unlock()
		fmt.Fprintf(c, "re:%s\n", sc.Text())
	}
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(20 * time.Second)) // a net under the test, not an assertion
	return &client{c, bufio.NewReader(c)}
}

func (c *client) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return c.r.ReadString('\n')
}

func (c *client) mustAsk(t *testing.T, line string) {
	t.Helper()
	if got, err := c.ask(line); err != nil || got != "re:"+line+"\n" {
		t.Fatalf("ask %q: %q, %v", line, got, err)
	}
}

// served reports whether a new connection gets an answer. The reset of a refused
// one may already show in the dial.
func served(p *faultproxy.Proxy) bool {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = (&client{c, bufio.NewReader(c)}).ask("anyone")
	return err == nil
}

func TestForwards(t *testing.T) {
	p := faultproxy.Start(t, serve(t).ln.Addr().String())
	a, b := dial(t, p), dial(t, p)
	a.mustAsk(t, "one")
	b.mustAsk(t, "two")
	if p.Conns() != 2 || p.Accepted() != 2 {
		t.Errorf("conns %d, accepted %d, want 2 and 2", p.Conns(), p.Accepted())
	}
}

func TestDropReplyTo(t *testing.T) {
	s := serve(t)
	p := faultproxy.Start(t, s.ln.Addr().String())
	bystander, c := dial(t, p), dial(t, p)
	bystander.mustAsk(t, "hello")
	c.mustAsk(t, "begin")

	lost := p.DropReplyTo([]byte("commit"))
	c.mustAsk(t, "other")
	io.WriteString(c, "com") // the match crosses packets
	time.Sleep(20 * time.Millisecond)
	if got, err := c.ask("mit"); !errors.Is(err, syscall.ECONNRESET) || got != "" {
		t.Fatalf("the reply to commit came: %q, %v", got, err)
	}
	<-lost
	if got := fmt.Sprint(s.requests()); got != "[hello begin other commit]" {
		t.Errorf("server was asked %s", got)
	}
	bystander.mustAsk(t, "commit") // one order, one lost reply
	dial(t, p).mustAsk(t, "again")
}

func TestCutAndReset(t *testing.T) {
	p := faultproxy.Start(t, serve(t).ln.Addr().String())
	c := dial(t, p)
	c.mustAsk(t, "one")
	p.Cut()
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after Cut: %v, want EOF", err)
	}
	c = dial(t, p)
	c.mustAsk(t, "two")
	p.Reset()
	if _, err := c.r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Reset: %v, want a reset", err)
	}
	dial(t, p).mustAsk(t, "three")
}

func TestRetarget(t *testing.T) {
	a, b := serve(t), serve(t)
	p := faultproxy.Start(t, a.ln.Addr().String())
	live := dial(t, p)
	live.mustAsk(t, "one")
	p.Retarget(b.ln.Addr().String())
	dial(t, p).mustAsk(t, "two")
	live.mustAsk(t, "three")
	if one, two := fmt.Sprint(a.requests()), fmt.Sprint(b.requests()); one != "[one three]" || two != "[two]" {
		t.Errorf("the first was asked %s, the second %s", one, two)
	}
}

func TestRefuse(t *testing.T) {
	p := faultproxy.Start(t, serve(t).ln.Addr().String())
	live := dial(t, p)
	live.mustAsk(t, "one")
	p.Refuse(true)
	if served(p) {
		t.Error("a refused connection was served")
	}
	live.mustAsk(t, "three")
	p.Refuse(false)
	dial(t, p).mustAsk(t, "four")
}

func TestStallAndResume(t *testing.T) {
	s := serve(t)
	p := faultproxy.Start(t, s.ln.Addr().String())
	c := dial(t, p)
	c.mustAsk(t, "one")
	p.Stall()
	p.Stall() // twice is once
	io.WriteString(c, "two\n")
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while stalled: %v", err)
	}
	if got := len(s.requests()); got != 1 {
		t.Errorf("the server saw %d requests while stalled, want 1", got)
	}
	p.Resume()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if got, err := c.r.ReadString('\n'); err != nil || got != "re:two\n" {
		t.Errorf("after Resume: %q, %v", got, err)
	}
}

func TestServerDown(t *testing.T) {
	s := serve(t)
	p := faultproxy.Start(t, s.ln.Addr().String())
	s.ln.Close()
	if served(p) {
		t.Error("answered without a server")
	}
}
