package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// wire is a connection that notes what is written to it, each write by itself.
type wire struct {
	net.Conn
	writes []string
	fail   error // of the write after the first ones, of which half is written
	first  int
	closed bool
}

func (w *wire) Write(p []byte) (int, error) {
	if err := w.fail; err != nil && len(w.writes) >= w.first {
		w.fail = nil
		w.writes = append(w.writes, string(p[:len(p)/2]))
		return len(p) / 2, err
	}
	w.writes = append(w.writes, string(p))
	return len(p), nil
}

func (w *wire) Close() error { w.closed = true; return nil }

// A corked connection keeps what anybody writes, in its order and no more than some; after an error nothing is written.
func TestCork(t *testing.T) {
	w := &wire{}
	c := &corkConn{Conn: w}
	put := func(text string) error { _, err := io.WriteString(c, text); return err }
	want := func(writes ...string) {
		t.Helper()
		if !slices.Equal(w.writes, writes) {
			t.Fatalf("written: %.60q, want %.60q", w.writes, writes)
		}
	}
	put("a")
	want("a")
	c.cork()
	put("ack")
	put("heartbeat")
	put("ack")
	want("a")
	if err := c.uncork(); err != nil {
		t.Error(err)
	}
	want("a", "ackheartbeatack")
	if err := c.uncork(); err != nil {
		t.Error(err)
	}
	want("a", "ackheartbeatack") // there was nothing
	put("b")
	want("a", "ackheartbeatack", "b")

	w.writes = nil
	c.cork()
	large := strings.Repeat("x", maxKept)
	put("1")
	put(large)
	put("2")
	want("1" + large)
	c.uncork()
	want("1"+large, "2")

	w.writes = nil
	w.fail = os.ErrDeadlineExceeded
	c.cork()
	if err := put("kept"); err != nil {
		t.Error(err)
	}
	put(large) // which writes it
	if err := put("late"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write after one that was written by half: %v", err)
	}
	if err := c.uncork(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("uncork says of what was not written: %v", err)
	}
	want(("kept" + large)[:(4+maxKept)/2])
	w.writes, w.fail = nil, nil
	if err := put("later"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write after the cork: %v", err)
	}
	want()

	w, c = &wire{fail: io.ErrClosedPipe}, nil
	c = &corkConn{Conn: w}
	if err := put("a"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write that failed: %v", err)
	}
	c.cork()
	if err := put("b"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("kept behind a write that failed: %v", err)
	}
	want("")
}

// noted counts the writes of a connection.
type noted struct {
	net.Conn
	writes int
}

func (n *noted) Write(p []byte) (int, error) { n.writes++; return n.Conn.Write(p) }

// What the driver's TLS writes while a link's connection is corked leaves in one go too.
func TestCorkBelowTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const text = "one two three"
	got := make(chan string)
	go func() {
		defer close(got)
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		p := make([]byte, len(text))
		if _, err := io.ReadFull(c, p); err != nil {
			t.Error(err)
		}
		got <- string(p)
	}()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	l := &link{}
	c, err := l.connect(t.Context(), "tcp", ln.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := &noted{Conn: l.cork.Conn}
	l.cork.Conn = n
	secure := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	before := n.writes
	l.cork.cork()
	for part := range strings.SplitAfterSeq(text, " ") {
		if _, err := io.WriteString(secure, part); err != nil {
			t.Error(err)
		}
	}
	if err := l.cork.uncork(); err != nil {
		t.Error(err)
	}
	if s := <-got; s != text || n.writes != before+1 {
		t.Errorf("%q arrived, in %d writes, want %q in one", s, n.writes-before, text)
	}
}
