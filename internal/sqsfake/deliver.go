package sqsfake

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"syscall"
)

// enter registers an exchange, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active.Add(1)
	return true
}

// headers are those of the answer.
func (o outcome) headers() http.Header {
	h := http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {messageID()}}
	maps.Copy(h, o.header)
	h.Set("Content-Length", strconv.Itoa(len(o.body)))
	return h
}

// ServeHTTP answers a call. Faults of the connection need HTTP/1.1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.active.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left in mid-request
	}
	o := s.exchange(r.Context(), r, body)
	switch o.kind {
	case Close:
		panic(http.ErrAbortHandler)
	case Reset:
		reset(w)
		return
	case Half:
		o.body = o.body[:len(o.body)/2]
	}
	maps.Copy(w.Header(), o.headers())
	w.WriteHeader(o.status)
	if o.kind == Cut {
		w.Write(o.body[:len(o.body)/2]) // the client may have left
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.Write(o.body)
}

// reset ends a connection so that the client sees a TCP reset.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic("sqsfake: " + err.Error()) // HTTP/2
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) // a connection that is gone needs no reset
	}
	c.Close()
}

// HTTPClient returns a client whose calls, to whatever URL, go to the server without
// a socket. Within a bubble of testing/synctest both the server and its clients
// must be made.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: transport{s}} }

type transport struct{ s *Server }

// RoundTrip lets an exchange go on when its client leaves, as a socket does.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if !t.s.enter() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	answered := make(chan outcome, 1)
	go func() {
		defer t.s.active.Done()
		answered <- t.s.exchange(context.WithoutCancel(r.Context()), r, body)
	}()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case o := <-answered:
		return o.response(r)
	}
}

func (o outcome) response(r *http.Request) (*http.Response, error) {
	var rest io.Reader = bytes.NewReader(nil)
	switch o.kind {
	case Close:
		return nil, io.EOF
	case Reset:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case Half:
		o.body = o.body[:len(o.body)/2]
	}
	h, size := o.headers(), len(o.body)
	if o.kind == Cut {
		o.body, rest = o.body[:size/2], ended{}
	}
	return &http.Response{
		Status: http.StatusText(o.status), StatusCode: o.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: int64(size), Request: r,
		Body: io.NopCloser(io.MultiReader(bytes.NewReader(o.body), rest)),
	}, nil
}

// ended is the rest of a body whose connection went.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
