// Package slackstub is a stand-in for Slack's Web API, for tests: chat.postMessage, conversations.history, conversations.list and auth.test,
// and an incoming webhook. It keeps what was posted, and fails as it is told: above all by posting and losing the reply.
//
//	stub, err := slackstub.Start(slackstub.Options{})
//	defer stub.Close()
//	stub.Script(slackstub.Drop)     // the next message is posted, and the connection closed without a reply
//	… post to stub.URL() with slackstub.Token …
//	messages := stub.Messages()     // must be one
package slackstub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Token is the one that the stub takes.
const Token = "xoxb-planted-stub"

// WebhookPath is where the incoming webhook is; it is a secret.
const WebhookPath = "/services/T0/B0/secret"

// Fault is what becomes of one request to post. Code is Slack's error code in an answer of status 200.
type Fault struct {
	Keep   bool   // posted all the same
	Cut    bool   // the connection is closed without a reply
	Hang   bool   // no reply until Close
	Status int    // 0: 200
	Retry  string // the Retry-After header
	Code   string // ok is false, and this is why
	Body   string // instead of an answer
}

// Faults that tests name often.
var (
	Accept = Fault{Keep: true}
	Drop   = Fault{Keep: true, Cut: true}  // posted, and the reply is lost
	Lost   = Fault{Cut: true}              // not posted, and no reply
	Hang   = Fault{Keep: true, Hang: true} // posted, and no reply
	Limit  = Fault{Status: http.StatusTooManyRequests, Retry: "7"}
)

// Options change the stub.
type Options struct {
	Listener net.Listener  // nil: a free port of loopback
	Latency  time.Duration // between posting a message and saying so
	PageSize int           // most messages or channels of a page, whatever is asked for; 0: as asked
	// History, if set, changes a page of the history before it is given out.
	History func(page map[string]any)
	// List, if set, changes a channel of the list before it is given out.
	List func(channel map[string]any)
}

// Message is one that was posted.
type Message struct {
	Channel  string // its id
	TS       string
	Text     string
	Event    string         // of the metadata
	Payload  map[string]any // of the metadata
	Incoming bool           // by the webhook
}

// Channels that the stub has, by name. It is a member of all.
var Channels = map[string]string{"support": "C0000000001", "sales": "C0000000002"}

// Stub is a running server.
type Stub struct {
	opt    Options
	server *http.Server
	listen net.Listener
	done   chan struct{}
	served sync.WaitGroup

	mu       sync.Mutex
	script   []Fault
	messages []Message
	posts    int
	looks    int
	last     int64 // the latest timestamp, in microseconds
}

// Start serves until Close.
func Start(opt Options) (*Stub, error) {
	s := &Stub{opt: opt, done: make(chan struct{}), listen: opt.Listener}
	if s.listen == nil {
		var err error
		if s.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat.postMessage", s.post)
	mux.HandleFunc("POST /api/conversations.history", s.history)
	mux.HandleFunc("POST /api/conversations.list", s.list)
	mux.HandleFunc("POST /api/auth.test", s.test)
	mux.HandleFunc("POST "+WebhookPath, s.incoming)
	s.server = &http.Server{Handler: mux}
	s.served.Go(func() { _ = s.server.Serve(s.listen) }) // it ends with Close
	return s, nil
}

// Close ends the server and what hangs.
func (s *Stub) Close() error {
	close(s.done)
	err := s.server.Close()
	s.served.Wait()
	return err
}

// URL is the API's, as Workspace.BaseURL has it.
func (s *Stub) URL() string { return s.host() + "/api/" }

// WebhookURL is the incoming webhook's.
func (s *Stub) WebhookURL() string { return s.host() + WebhookPath }

func (s *Stub) host() string { return "http://" + s.listen.Addr().String() }

// Script says what becomes of the next posts, one each; those after them are accepted.
func (s *Stub) Script(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, faults...)
}

// Messages are those that were posted, in order.
func (s *Stub) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Posts counts the requests to post, whatever became of them.
func (s *Stub) Posts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posts
}

// Looks counts the pages of the history that were asked for.
func (s *Stub) Looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// Put posts a message of somebody else's.
func (s *Stub) Put(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.TS = s.stamp()
	s.messages = append(s.messages, m)
}

// stamp is a new message's. Two never have the same.
func (s *Stub) stamp() string {
	s.last = max(time.Now().UnixMicro(), s.last+1)
	return fmt.Sprintf("%d.%06d", s.last/1e6, s.last%1e6)
}

// next is what becomes of a request to post.
func (s *Stub) next() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posts++
	if len(s.script) == 0 {
		return Accept
	}
	f := s.script[0]
	s.script = s.script[1:]
	return f
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone
}

func refuse(w http.ResponseWriter, code string) {
	answer(w, map[string]any{"ok": false, "error": code})
}

// known wants the token.
func known(w http.ResponseWriter, r *http.Request) bool {
	if r.FormValue("token") == Token || r.Header.Get("Authorization") == "Bearer "+Token {
		return true
	}
	refuse(w, "invalid_auth")
	return false
}

func (s *Stub) post(w http.ResponseWriter, r *http.Request) {
	f := s.next()
	if !known(w, r) {
		return
	}
	m := Message{Channel: channel(r.FormValue("channel")), Text: r.FormValue("text")}
	if m.Channel == "" {
		refuse(w, "channel_not_found")
		return
	}
	var meta struct {
		Type    string         `json:"event_type"`
		Payload map[string]any `json:"event_payload"`
	}
	if text := r.FormValue("metadata"); text != "" && json.Unmarshal([]byte(text), &meta) != nil {
		refuse(w, "invalid_metadata_format")
		return
	}
	m.Event, m.Payload = meta.Type, meta.Payload
	m = s.keep(f, m)
	time.Sleep(s.opt.Latency)
	if !s.fails(w, f) {
		answer(w, map[string]any{"ok": true, "channel": m.Channel, "ts": m.TS, "message": map[string]any{"text": m.Text, "ts": m.TS}})
	}
}

func (s *Stub) incoming(w http.ResponseWriter, r *http.Request) {
	f := s.next()
	var body struct {
		Text string `json:"text"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Text == "" {
		http.Error(w, "invalid_payload", http.StatusBadRequest)
		return
	}
	s.keep(f, Message{Channel: Channels["support"], Text: body.Text, Incoming: true})
	if !s.fails(w, f) {
		fmt.Fprint(w, "ok")
	}
}

func (s *Stub) keep(f Fault, m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.TS = s.stamp()
	if f.Keep {
		s.messages = append(s.messages, m)
	}
	return m
}

// fails answers a request as the fault says; false: it is to be answered well.
func (s *Stub) fails(w http.ResponseWriter, f Fault) bool {
	switch {
	case f.Hang:
		<-s.done
		panic(http.ErrAbortHandler)
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Code != "":
		refuse(w, f.Code)
	case f.Status != 0 || f.Body != "":
		if f.Retry != "" {
			w.Header().Set("Retry-After", f.Retry)
		}
		w.WriteHeader(cmp.Or(f.Status, http.StatusOK))
		fmt.Fprint(w, f.Body)
	default:
		return false
	}
	return true
}

// channel is the id of a channel that is named in any way; "": there is none.
func channel(name string) string {
	for _, id := range Channels {
		if id == name {
			return id
		}
	}
	return Channels[strings.TrimPrefix(name, "#")]
}

func (s *Stub) test(w http.ResponseWriter, r *http.Request) {
	if known(w, r) {
		answer(w, map[string]any{"ok": true, "team": "Acme", "user": "worker"})
	}
}

func (s *Stub) list(w http.ResponseWriter, r *http.Request) {
	if !known(w, r) {
		return
	}
	var all []map[string]any
	for name, id := range Channels {
		c := map[string]any{"id": id, "name": name, "created": time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), "previous_names": []string{}}
		if s.opt.List != nil {
			s.opt.List(c)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(a["id"].(string), b["id"].(string)) })
	page, next, _ := paged(s, r, all)
	answer(w, map[string]any{"ok": true, "channels": page, "response_metadata": map[string]any{"next_cursor": next}})
}

// history is newest first, as Slack's is.
func (s *Stub) history(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.looks++
	messages := slices.Clone(s.messages)
	s.mu.Unlock()
	if !known(w, r) {
		return
	}
	id := r.FormValue("channel")
	if !slices.ContainsFunc(messages, func(m Message) bool { return m.Channel == id }) && channel(id) != id {
		refuse(w, "channel_not_found")
		return
	}
	all := []map[string]any{}
	for _, m := range slices.Backward(messages) {
		if m.Channel != id || m.TS < cmp.Or(r.FormValue("oldest"), "0") || r.FormValue("latest") != "" && m.TS > r.FormValue("latest") {
			continue
		}
		one := map[string]any{"type": "message", "ts": m.TS, "text": m.Text}
		if m.Event != "" && r.FormValue("include_all_metadata") == "1" {
			one["metadata"] = map[string]any{"event_type": m.Event, "event_payload": m.Payload}
		}
		all = append(all, one)
	}
	page, next, more := paged(s, r, all)
	doc := map[string]any{"ok": true, "messages": page, "has_more": more, "response_metadata": map[string]any{"next_cursor": next}}
	if s.opt.History != nil {
		s.opt.History(doc)
	}
	answer(w, doc)
}

// paged cuts a page out of all, at the cursor.
func paged[T any](s *Stub, r *http.Request, all []T) (page []T, next string, more bool) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil || limit <= 0 {
		limit = 100
	}
	if s.opt.PageSize > 0 {
		limit = min(limit, s.opt.PageSize)
	}
	from, err := strconv.Atoi(r.FormValue("cursor"))
	if err != nil {
		from = 0
	}
	from = min(max(from, 0), len(all))
	to := min(from+limit, len(all))
	if more = to < len(all); more {
		next = strconv.Itoa(to)
	}
	return all[from:to], next, more
}
