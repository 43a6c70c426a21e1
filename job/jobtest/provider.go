package jobtest

import (
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/mortal"
)

// line is one request that the provider got, and what it answered.
type line struct {
	gate   *gate // of its attempt; nil: it was made outside of any
	what   string
	paid   bool
	status int
	header http.Header
	body   []byte
}

type connKey struct{}

// serve answers whatever is dialled, until the returned function is called.
func (w *world) serve() (stop func()) {
	h, stopModels := w.c.Options.Provider, func() {}
	if h == nil {
		h, stopModels = w.models()
	}
	s := &http.Server{
		ErrorLog: log.New(w.Output(), "provider: ", 0),
		Handler:  http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.answer(rw, r, h) }),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	l := w.Net.Listen(mortal.Anywhere)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	return func() {
		s.Close()
		<-done
		stopModels()
	}
}

// models is the stand-in for model providers.
func (w *world) models() (http.Handler, func()) {
	text := w.c.Options.Answer
	if text == "" {
		text = "ok"
	}
	m, err := modelserver.Start(modelserver.Options{Listener: w.Net.Listen("models.jobtest:80"), Generate: func(modelserver.Request) string { return text }})
	if err != nil {
		w.Fatalf("jobtest: %v", err)
	}
	return m.Handler(), func() { m.Close() }
}

// answer has the provider answer a request, and writes it down before.
func (w *world) answer(rw http.ResponseWriter, r *http.Request, provider http.Handler) {
	c, _ := r.Context().Value(connKey{}).(*mortal.Conn)
	body, err := io.ReadAll(r.Body)
	if c == nil || err != nil {
		return // the client left
	}
	scheme := "http://"
	if strings.HasSuffix(c.To, ":443") {
		scheme = "https://"
	}
	l := &line{what: r.Method + " " + scheme + r.Host + r.URL.Path, paid: !w.free(r)}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	provider.ServeHTTP(rec, r)
	res := rec.Result()
	l.status, l.header, l.body = res.StatusCode, res.Header, rec.Body.Bytes()
	wait, lose := w.got(c, l)
	if l.paid {
		select {
		case <-time.After(wait):
		case <-w.ended:
			return
		}
	}
	if lose {
		panic(http.ErrAbortHandler) // the server cuts the connection
	}
	w.answering(c, l)
	maps.Copy(rw.Header(), l.header)
	rw.WriteHeader(l.status)
	_, _ = rw.Write(l.body) // an error means that the client is gone
}

func (w *world) free(r *http.Request) bool {
	if w.c.Options.Free != nil {
		return w.c.Options.Free(r)
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// got writes a request down, and says how long its answer takes and whether it is lost.
func (w *world) got(c *mortal.Conn, l *line) (wait time.Duration, lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = w.c.Options.Latency
	if wait == 0 {
		wait = time.Second
	}
	if w.over {
		return wait, false
	}
	if l.gate = w.gate(c.Attempt); l.gate != nil { // its gate was passed before its first byte
		l.gate.wired = true
	}
	w.lines = append(w.lines, l)
	if !l.paid {
		return wait, false
	}
	for _, f := range w.faults {
		if f.done || l.gate == nil {
			continue
		}
		late := l.gate.Timeout + time.Minute
		switch f.kind {
		case lateAnswer:
			f.done, wait = true, late
		case slowAnswer:
			f.done, wait = true, l.gate.Timeout/2
		case loseAnswer:
			f.done, lose = true, true
		}
	}
	w.pass(c.From, l.point(false))
	return wait, lose
}

// answering is told before an answer is written.
func (w *world) answering(c *mortal.Conn, l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.paid && !w.over && !(c.From != nil && c.From.Frozen()) {
		w.pass(c.From, l.point(true))
	}
}

func (l *line) point(after bool) Point {
	if l.gate == nil {
		return Point{Op: Wire, After: after, Call: l.what}
	}
	return Point{Op: Wire, After: after, Job: l.gate.job, Call: l.gate.Call.Name}
}

// billed reports whether the provider made what was asked for.
func (l *line) billed() bool { return l.paid && l.status >= 200 && l.status < 300 }
