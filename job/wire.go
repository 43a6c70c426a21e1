package job

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
)

// wire makes one request over a connection of its own, by HTTP/1.1. It is made of the
// parts of net/http, without the Transport: that keeps connections, which may be stale
// and turn a request that never arrived into an unknown one, repeats requests by
// itself, and keeps two goroutines and two buffers for every answer that is waited for.
type wire struct {
	dialer dialer
	gate   *sendGate
}

const (
	gzipCoding = "gzip"
	maxHeader  = 10 << 20 // bytes of a response before its body; net/http's own limit
)

var errHeader = errors.New("the header of the response is too large")

// send sends a request and returns the response when its header is there. Closing its body
// closes the connection, and so does the end of the request's context.
func (w *wire) send(req *http.Request) (*http.Response, error) {
	if err := sendable(req); err != nil {
		return nil, err
	}
	ctx := req.Context()
	under, err := w.connect(ctx, req.URL)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: under, ctx: ctx, written: make(chan struct{}), left: cmp.Or(w.dialer.base.MaxResponseHeaderBytes, maxHeader)}
	c.stop = context.AfterFunc(ctx, func() { under.Close() })
	// On a goroutine of its own: a server may answer, with a refusal mostly, before it
	// has read all.
	go c.write(w, req)
	// What is waited for needs no more of the request, which is gone with its writing.
	resp, err := c.read(req.Method, req.Header.Get("Accept-Encoding") == gzipCoding)
	if err != nil {
		c.Close()
		return nil, cmp.Or(context.Cause(ctx), c.wrote, err)
	}
	return resp, nil
}

// compresses reports whether the wire asks for a compressed answer.
func (w *wire) compresses(req *http.Request) bool {
	return !w.dialer.base.DisableCompression && req.Header.Get("Range") == "" && req.Method != http.MethodHead
}

// sendable refuses what a server could read as another request than was meant.
func sendable(req *http.Request) error {
	switch {
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("unsupported scheme %q", req.URL.Scheme)
	case req.URL.Host == "":
		return errors.New("no host in the request's URL")
	case !isToken(cmp.Or(req.Method, http.MethodGet)):
		return fmt.Errorf("invalid method %q", req.Method)
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !isToken(name) || unsound(v) {
				return fmt.Errorf("invalid header %q", name) // the value may be secret
			}
		}
	}
	return nil
}

// isToken reports whether s can be a method or the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// connect makes a connection, to where application bytes begin. It does so on a
// goroutine of its own: a handshake needs a deep stack, which is gone with it, and a
// dialer may ignore its context.
func (w *wire) connect(ctx context.Context, to *url.URL) (net.Conn, error) {
	conns, errs := make(chan net.Conn), make(chan error, 1)
	go func() {
		c, err := w.dial(ctx, to)
		if err != nil {
			errs <- err
			return
		}
		select {
		case conns <- c:
		case <-ctx.Done():
			c.Close()
		}
	}()
	select {
	case c := <-conns:
		return c, nil
	case err := <-errs:
		return nil, cmp.Or(context.Cause(ctx), err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (w *wire) dial(ctx context.Context, to *url.URL) (net.Conn, error) {
	ctx, addr := w.gate.a.dialling(ctx), hostPort(to)
	switch {
	case to.Scheme == "https":
		return w.dialer.secure(ctx, "tcp", addr)
	case w.dialer.proxy != nil:
		return w.dialer.hop(ctx, "tcp")
	}
	return w.dialer.dial(ctx, "tcp", addr)
}

// wireConn is the connection of one request.
type wireConn struct {
	net.Conn
	ctx     context.Context
	stop    func() bool
	written chan struct{} // closed when nothing is written any more
	wrote   error         // why the request is not out whole; to be read after written
	left    int64         // bytes that may be read until the body begins
	first   [1]byte       // of the response
	ahead   int           // bytes of first that are still to be read
}

// write sends the request. If that fails, no answer is waited for.
func (c *wireConn) write(w *wire, req *http.Request) {
	defer close(c.written)
	to := &gatedConn{Conn: c.Conn, gate: w.gate}
	if req.URL.Scheme == "http" && w.dialer.proxy != nil {
		w.dialer.authorize(req.Header)
		c.wrote = req.WriteProxy(to)
	} else {
		c.wrote = req.Write(to)
	}
	if c.wrote != nil {
		c.Conn.Close()
	}
}

// read waits for the response: for its first byte without a buffer.
func (c *wireConn) read(method string, gzipped bool) (*http.Response, error) {
	if _, err := io.ReadFull(c.Conn, c.first[:]); err != nil {
		return nil, err
	}
	c.ahead = 1
	if t := httptrace.ContextClientTrace(c.ctx); t != nil && t.GotFirstResponseByte != nil {
		t.GotFirstResponseByte()
	}
	br := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue // the answer is still to come
		}
		c.left = math.MaxInt64
		resp.Body = &wireBody{resp.Body, c}
		if strings.EqualFold(resp.Header.Get("Content-Encoding"), gzipCoding) && gzipped {
			resp.Body, resp.ContentLength, resp.Uncompressed = &gunzip{ReadCloser: resp.Body}, -1, true
			resp.Header.Del("Content-Encoding")
			resp.Header.Del("Content-Length")
		}
		return resp, nil
	}
}

// Read reads on until the limit is passed.
func (c *wireConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeader
	}
	n, err := copy(p, c.first[:c.ahead]), error(nil)
	if n == 0 {
		n, err = c.Conn.Read(p)
	} else {
		c.ahead = 0
	}
	c.left -= int64(n)
	return n, err
}

// Close also waits until nothing is written any more.
func (c *wireConn) Close() error {
	c.stop()
	err := c.Conn.Close()
	<-c.written
	return err
}

// wireBody is a response's body that owns the connection.
type wireBody struct {
	io.ReadCloser
	c *wireConn
}

// Read says why it ended, where that was not the server's doing.
func (b *wireBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(b.c.ctx), err)
	}
	return n, err
}

// Close does not read what is left.
func (b *wireBody) Close() error { return b.c.Close() }

// gunzip undoes the coding that the wire asked for. It waits for nothing before it is read.
type gunzip struct {
	io.ReadCloser
	zr *gzip.Reader
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.zr == nil {
		if g.zr, err = gzip.NewReader(g.ReadCloser); err != nil {
			return 0, err
		}
	}
	return g.zr.Read(p)
}
