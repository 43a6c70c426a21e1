package sqsfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Region and Account are parts of the ARNs.
const (
	Region  = "us-east-1"
	Account = "000000000000"
)

// Options of a Server. The zero value is a fake whose clock stands still.
type Options struct {
	// Running lets the clock go with the time. Advance moves it on top of that.
	Running bool
	// InFlight is how many messages of a queue may be in flight. 0: 120,000. Above
	// it a short poll of a standard queue answers OverLimit, every other is empty.
	InFlight int
	// KeepStale keeps a message of a standard queue that somebody else holds when it
	// is deleted with an older handle; the delete is a success all the same. AWS
	// may do either.
	KeepStale bool
	// Upstream is the endpoint of another server, "http://host:port": calls go there
	// and come back through the faults. The fake then has no queues, and its clock
	// moves nothing.
	Upstream string
}

// Server is a stand-in for SQS. Its methods may be used concurrently.
type Server struct {
	opt  Options
	url  string
	http http.Server

	mu      sync.Mutex
	base    time.Time
	offset  time.Duration
	queues  map[string]*queue
	number  int // of calls so far
	calls   []*Call
	faults  []*Fault
	held    chan struct{} // closed by Release
	changed chan struct{} // closed at the next change
	closed  bool
	active  sync.WaitGroup // exchanges; Add only under mu and before closed
	done    chan struct{}  // closed by Close: nobody waits any longer
}

// New makes a server without a socket. Clients reach it by HTTPClient, or by a
// listener of the caller's own, since it is an http.Handler.
func New(opt Options) *Server {
	if opt.InFlight == 0 {
		opt.InFlight = 120_000
	}
	return &Server{
		opt: opt, url: "http://sqs.test", base: time.Now(), queues: map[string]*queue{},
		held: make(chan struct{}), changed: make(chan struct{}), done: make(chan struct{}),
	}
}

// Start makes a server on a free port of loopback. It is closed with the test.
func Start(t testing.TB, opt Options) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the SQS fake: %v", err)
	}
	s := New(opt)
	s.url, s.http.Handler = "http://"+l.Addr().String(), s
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve the SQS fake: %v", err)
		}
	})
	return s
}

// URL is the endpoint, http://127.0.0.1:port, without a slash.
func (s *Server) URL() string { return s.url }

// Close ends all connections, open polls and held answers, and waits for them. Later
// calls do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()
	s.http.Close()
	s.active.Wait()
}

// Now is what the server's clock shows.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Server) now() time.Time {
	if s.opt.Running {
		return time.Now().Add(s.offset)
	}
	return s.base.Add(s.offset)
}

// Advance moves the clock. What becomes visible by it goes to the polls that wait,
// in their order.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
	s.settle()
}

// settle gives what can be received to the polls that wait, and tells everybody
// that something changed. The caller holds mu.
func (s *Server) settle() {
	for moved := true; moved; { // a message that goes to a dead-letter queue may be waited for there
		moved = false
		for _, q := range s.queues {
			moved = q.serve() || moved
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// WaitFor returns when ok does, which is asked again after every change: a call that
// comes in or is answered, a poll that opens, a message that moves. ok may use the
// methods of the server.
func (s *Server) WaitFor(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the SQS fake: %w", context.Cause(ctx))
		}
	}
}

// Polls counts the long polls that wait for a message of a queue, those included
// whose client has left.
func (s *Server) Polls(queue string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[queue]; q != nil {
		return len(q.waiters)
	}
	return 0
}

// Depth counts the messages of a queue.
type Depth struct{ Visible, InFlight, Delayed int }

// Depth counts the messages of a queue by name. A queue that does not exist has none.
func (s *Server) Depth(queue string) Depth {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		return Depth{}
	}
	return q.depth(s.now())
}

// Message is a message in a queue, as nobody but a test sees it.
type Message struct {
	ID, Body   string
	Attributes map[string]Attribute
	GroupID    string
	Receives   int
	Handle     string        // the newest; "" before the first receive
	HiddenFor  time.Duration // until it can be received; 0: now
	Source     string        // ARN of the queue that dead-lettered it
}

// Messages lists a queue by name, in order, without touching it.
func (s *Server) Messages(queue string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	var all []Message
	for _, m := range q.messages {
		v := Message{ID: m.id, Body: m.body, Attributes: m.attributes, GroupID: m.group, Receives: m.receives, Source: m.source}
		if m.current != nil {
			v.Handle = m.current.handle
		}
		v.HiddenFor = max(0, m.visibleAt().Sub(s.now()))
		all = append(all, v)
	}
	return all
}

// CreateQueue makes a queue as the action does, without a record of a call, and
// returns its URL. It panics where the action refuses.
func (s *Server) CreateQueue(name string, attributes map[string]string) string {
	return s.must(s.createQueue, Request{QueueName: name, Attributes: attributes}).(queueURL).QueueUrl
}

// Send sends a message as the action does, without a record of a call. It panics
// where the action refuses.
func (s *Server) Send(queue string, e Entry) {
	s.must(s.sendMessage, Request{QueueUrl: s.queueURL(queue), Entry: e})
}

// SendBodies is Send for messages of a standard queue that have a body only.
func (s *Server) SendBodies(queue string, bodies ...string) {
	for _, b := range bodies {
		s.Send(queue, Entry{MessageBody: &b})
	}
}

// must does an action for a test.
func (s *Server) must(action func(*exchange, Request) (any, *Error), r Request) any {
	reply, err := action(nil, r)
	if err != nil {
		panic("sqsfake: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	return reply
}

// ARN is that of a queue by name.
func ARN(queue string) string {
	return "arn:aws:sqs:" + Region + ":" + Account + ":" + queue
}

func (s *Server) queueURL(name string) string { return s.url + "/" + Account + "/" + name }

// queue finds a queue by its URL, of which the last element counts. The caller
// holds mu.
func (s *Server) queue(url string) (*queue, *Error) {
	if url == "" {
		return nil, missingParameter.with("The request must contain the parameter QueueUrl.")
	}
	q := s.queues[url[strings.LastIndexByte(url, '/')+1:]]
	if q == nil {
		return nil, &QueueDoesNotExist
	}
	return q, nil
}
