package modelserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options of a Server. The zero value is a server on a free port that answers
// every request at once and keeps its bill in memory.
type Options struct {
	Addr     string               // to listen on; "": a free port of 127.0.0.1
	Listener net.Listener         // to accept from instead, such as one in memory; its address is in URL, and Close closes it
	Generate func(Request) string // makes the text of an answer; nil: Summary
	// CallTools is what an answer asks for when the request offers tools; none: it is Generate's text. nil: ToolsOnce.
	CallTools func(Request) []ToolCall
	KeyOf     func(Request) string // business key; nil: PromptKey, else MetadataKey, else ClientID
	BillPath  string               // file to append the bill to, and to take it up from; "": none
	Latency   time.Duration        // of every generation, between the bill line and the first byte
	Storm     Storm                // faults for requests that no script names
}

// Server is a stand-in model server. Its methods may be used concurrently.
type Server struct {
	opt     Options
	url     string
	http    http.Server
	served  chan error
	script  script
	bill    *bill
	stored  stored
	batches batches
	holds   holds
	failure error // first error of the bill; guarded by mu
	mu      sync.Mutex
	closed  bool
	active  sync.WaitGroup // handlers; Add only under mu and before closed
	done    chan struct{}  // closed by Close: nobody waits any longer
}

// Start listens and serves until Close.
func Start(opt Options) (*Server, error) {
	if opt.Generate == nil {
		opt.Generate = Summary
	}
	if opt.CallTools == nil {
		opt.CallTools = ToolsOnce
	}
	if opt.KeyOf == nil {
		opt.KeyOf = defaultKey
	}
	b, err := openBill(opt.BillPath)
	if err != nil {
		return nil, fmt.Errorf("start the model server: %w", err)
	}
	l := opt.Listener
	if l == nil {
		if l, err = net.Listen("tcp", cmp.Or(opt.Addr, "127.0.0.1:0")); err != nil {
			return nil, errors.Join(fmt.Errorf("start the model server: %w", err), b.close())
		}
	}
	s := &Server{
		opt: opt, url: "http://" + l.Addr().String(), bill: b,
		script:  script{byKey: map[string]*queue{}, requests: map[string]int{}, storm: opt.Storm},
		batches: batches{files: map[string][]byte{}},
		holds:   holds{waiting: map[string][]chan struct{}{}},
		served:  make(chan error, 1), done: make(chan struct{}),
	}
	s.http.Handler = s.Handler()
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// URL is http://127.0.0.1:port, or that of the listener, without a slash.
func (s *Server) URL() string { return s.url }

// Handler serves the routes, for a listener of the caller's own (HTTP/1.1). Close
// waits for requests that came that way too.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range []string{ChatCompletions, Responses, Messages} {
		mux.HandleFunc("POST "+route, s.generate(route))
	}
	mux.HandleFunc("GET "+Responses+"/{id}", s.getStored(Responses))
	mux.HandleFunc("GET "+ChatCompletions+"/{id}", s.getStored(ChatCompletions))
	mux.HandleFunc("GET "+ChatCompletions, s.listStored)
	s.batchRoutes(mux)
	mux.HandleFunc("GET /bill", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Bill()) })
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.RequestsByKey()) })
	mux.HandleFunc("POST /script", s.postScript)
	mux.HandleFunc("POST /release", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, object{"released": s.Release(r.URL.Query().Get("key"))})
	})
	return mux
}

// Close ends all connections, waits for its handlers and closes the bill. It
// returns what went wrong with the bill since Start. Later calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.active.Wait()
	return errors.Join(err, s.failure, s.bill.close())
}

// Script adds faults for the next requests of key, in order. It panics on a fault
// that does not exist.
func (s *Server) Script(key string, faults ...Fault) { s.mustScript(Script{Key: key, Faults: faults}) }

// ScriptAny adds faults for the next requests whose key has none of its own.
func (s *Server) ScriptAny(faults ...Fault) { s.mustScript(Script{Any: true, Faults: faults}) }

func (s *Server) mustScript(c Script) {
	if err := s.script.add(c); err != nil {
		panic("modelserver: " + err.Error())
	}
}

func (s *Server) postScript(w http.ResponseWriter, r *http.Request) {
	var c Script
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err == nil {
		err = s.script.add(c)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Release lets go of all answers of key that are held at this moment, and reports
// how many those are. An answer is held from before its bill line is written, and
// whether or not its client is still there.
func (s *Server) Release(key string) int { return s.holds.release(key) }

// Bill returns the lines so far.
func (s *Server) Bill() []Line {
	lines, _ := s.bill.snapshot()
	return lines
}

// BillByKey returns the lines so far by business key.
func (s *Server) BillByKey() map[string][]Line { return byKey(s.Bill()) }

// WaitFor returns the first line of the bill, written or to come, that satisfies ok.
func (s *Server) WaitFor(ctx context.Context, ok func(Line) bool) (Line, error) {
	return s.bill.waitFor(ctx, ok)
}

// Requests counts the requests for a generation that arrived, billed or not.
func (s *Server) Requests() int {
	n := 0
	for _, c := range s.script.counts() {
		n += c
	}
	return n
}

// RequestsByKey counts them by business key. Those that died unread are under their
// X-Client-Request-Id.
func (s *Server) RequestsByKey() map[string]int { return s.script.counts() }

// enter registers a handler, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active.Add(1)
	return true
}

// fail keeps the first error of the bill for Close.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = cmp.Or(s.failure, err)
}

// wait reports whether c was closed before the client left or the server closed.
func (s *Server) wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}

// sleep is wait for d to pass.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	over, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return s.wait(ctx, over.Done())
}

// generate serves one of the routes that cost money.
func (s *Server) generate(route string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.active.Done()
		id := r.Header.Get("X-Client-Request-Id")
		if s.script.unread(id) {
			cutConnection(w, true)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.script.count(id) // the client left in mid-request
			return
		}
		req, err := parse(route, r.Header, body)
		x := exchange{server: s, w: w, r: r, req: req, key: s.opt.KeyOf(req), requestID: "req_" + rand.Text()}
		header := map[string]string{OpenAI: "x-request-id", Anthropic: "request-id"}[req.Provider]
		w.Header().Set(header, x.requestID)
		if err != nil {
			s.script.count(x.key)
			no := refusals[BadRequest]
			no.message = err.Error()
			refuse(w, req.Provider, x.requestID, Fault{}, no)
			return
		}
		if err := x.serve(s.script.next(x.key)); err != nil {
			s.fail(err)
			panic(http.ErrAbortHandler) // no answer that the bill does not know
		}
	}
}
