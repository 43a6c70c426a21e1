package sqsfake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// actions are what the fake can do.
var actions = map[string]func(*Server, *exchange, Request) (any, *Error){
	"ChangeMessageVisibility":      (*Server).changeMessageVisibility,
	"ChangeMessageVisibilityBatch": (*Server).changeMessageVisibilityBatch,
	"CreateQueue":                  (*Server).createQueue,
	"DeleteMessage":                (*Server).deleteMessage,
	"DeleteMessageBatch":           (*Server).deleteMessageBatch,
	"DeleteQueue":                  (*Server).deleteQueue,
	"GetQueueAttributes":           (*Server).getQueueAttributes,
	"GetQueueUrl":                  (*Server).getQueueURL,
	"ListDeadLetterSourceQueues":   (*Server).listSources,
	"ListQueues":                   (*Server).listQueues,
	"PurgeQueue":                   (*Server).purgeQueue,
	"ReceiveMessage":               (*Server).receiveMessage,
	"SendMessage":                  (*Server).sendMessage,
	"SendMessageBatch":             (*Server).sendMessageBatch,
	"SetQueueAttributes":           (*Server).setQueueAttributes,
	"StartMessageMoveTask":         (*Server).startMessageMoveTask,
}

// exchange is one call from its arrival to its answer.
type exchange struct {
	s      *Server
	call   *Call
	fault  Fault
	header http.Header // of the request
	path   string
}

// outcome is what a call came to, and how the client gets it.
type outcome struct {
	status int
	header http.Header
	body   []byte
	kind   Kind // Close, Reset, Cut or Half; else the whole answer
}

// exchange takes a call through its fault.
func (s *Server) exchange(ctx context.Context, r *http.Request, body []byte) outcome {
	x := s.arrive(r, body)
	f := x.fault
	o := outcome{kind: Close}
	if s.sleep(f.Before) && (f.Kind != Hold || f.Done || s.hold()) {
		if f.effect() {
			o = x.effect(ctx)
		}
		if s.sleep(f.After) && (f.Kind != Hold || !f.Done || s.hold()) {
			o = f.answer(o)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.call.record(o)
	s.settle()
	return o
}

// arrive records a call and finds its fault.
func (s *Server) arrive(r *http.Request, body []byte) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	c := &Call{N: s.number, At: s.now(), Body: body}
	_, c.Action, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	// A body that cannot be read is refused when it comes to its effect.
	json.Unmarshal(body, &c.Request)
	c.Queue = c.Request.QueueName
	if u := c.Request.QueueUrl; u != "" {
		c.Queue = u[strings.LastIndexByte(u, '/')+1:]
	}
	x := &exchange{s: s, call: c, fault: s.fault(*c), header: r.Header, path: r.URL.Path}
	c.Fault = x.fault.name()
	s.calls = append(s.calls, c)
	s.settle()
	return x
}

// effect does the call, but for the entries that its fault lets fail.
func (x *exchange) effect(ctx context.Context) outcome {
	body, left := x.body()
	o := outcome{status: http.StatusOK, body: []byte("{}")}
	switch {
	case !left: // every entry fails
	case x.s.opt.Upstream != "":
		o = x.forward(ctx, body)
	default:
		o = x.do(body)
	}
	if o.status == http.StatusOK {
		o.body = x.falsify(o.body)
	}
	return o
}

// do is effect on the queues of the fake.
func (x *exchange) do(body []byte) outcome {
	action, ok := actions[x.call.Action]
	if !ok {
		return unknownOperation.outcome()
	}
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		return serialization.with("%v", err).outcome()
	}
	reply, e := action(x.s, x, r)
	x.s.mu.Lock()
	x.s.settle()
	x.s.mu.Unlock()
	if e != nil {
		return e.outcome()
	}
	b, err := json.Marshal(reply)
	if err != nil {
		panic(fmt.Sprintf("sqsfake: %v", err))
	}
	return outcome{status: http.StatusOK, body: b}
}

// forward is effect on another server.
func (x *exchange) forward(ctx context.Context, body []byte) outcome {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.s.opt.Upstream+x.path, bytes.NewReader(body))
	if err != nil {
		panic(fmt.Sprintf("sqsfake: %v", err))
	}
	r.Header = x.header.Clone()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return outcome{kind: Close}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return outcome{kind: Close}
	}
	resp.Header.Del("Content-Length")
	return outcome{status: resp.StatusCode, header: resp.Header, body: b}
}

// body is the request without the entries that fail, and whether there is anything left.
// A batch that is refused as a whole stays whole.
func (x *exchange) body() ([]byte, bool) {
	entries := x.call.Request.Entries
	if len(x.fault.Entries) == 0 || x.fault.Done || checkBatch(x.call.Request) != nil {
		return x.call.Body, true
	}
	fields := object(x.call.Body)
	var raw, kept []json.RawMessage
	json.Unmarshal(fields["Entries"], &raw) // it was decoded before
	for i := range entries {
		if x.fault.fails(i) == nil {
			kept = append(kept, raw[i])
		}
	}
	fields["Entries"] = encode(kept)
	return encode(fields), len(kept) > 0
}

// falsify writes the fault's failed entries and wrong digests into a good answer.
func (x *exchange) falsify(reply []byte) []byte {
	f := x.fault
	if len(f.Entries) == 0 && len(f.BadMD5) == 0 {
		return reply
	}
	fields := object(reply)
	if len(f.BadMD5) > 0 {
		var messages []map[string]json.RawMessage
		json.Unmarshal(fields["Messages"], &messages) // none in an empty answer
		for _, i := range f.BadMD5 {
			if i < len(messages) {
				messages[i]["MD5OfBody"] = encode(md5Hex("another body"))
			}
		}
		fields["Messages"] = encode(messages)
	}
	if len(f.Entries) > 0 {
		x.falsifyEntries(fields)
	}
	return encode(fields)
}

func (x *exchange) falsifyEntries(fields map[string]json.RawMessage) {
	var failures []failed
	var good []map[string]any
	json.Unmarshal(fields["Failed"], &failures) // either may be missing
	json.Unmarshal(fields["Successful"], &good)
	for i, e := range x.call.Request.Entries {
		if err := x.fault.fails(i); err != nil {
			failures = append(failures, err.entry(e.Id))
			good = slices.DeleteFunc(good, func(g map[string]any) bool { return g["Id"] == e.Id })
		}
	}
	fields["Failed"], fields["Successful"] = encode(failures), encode(good)
}

// answer is what the client gets when the call itself came to o.
func (f Fault) answer(o outcome) outcome {
	switch f.Kind {
	case Refuse:
		return f.Error.outcome()
	case Page:
		return outcome{
			status: cmp.Or(f.Status, http.StatusServiceUnavailable), header: http.Header{"Content-Type": {"text/html"}},
			body: []byte("<html><body><h1>The service is not available</h1></body></html>"),
		}
	case Mute:
		return outcome{status: http.StatusOK, body: []byte("{}")}
	case Close, Reset, Cut, Half:
		o.kind = f.Kind
	}
	return o
}

// outcome is the error as an answer.
func (e Error) outcome() outcome {
	h := http.Header{}
	if e.Code != "" {
		blame := "Sender"
		if e.Server {
			blame = "Receiver"
		}
		h.Set("x-amzn-query-error", e.Code+";"+blame)
	}
	return outcome{status: cmp.Or(e.Status, http.StatusBadRequest), header: h, body: encode(map[string]string{"__type": e.Type, "message": e.Message})}
}

// record fills in how a call ended.
func (c *Call) record(o outcome) {
	c.Answered = true
	if o.kind != Close && o.kind != Reset {
		c.Status = o.status
	}
	c.Code, _, _ = strings.Cut(o.header.Get("x-amzn-query-error"), ";")
	var reply struct{ Messages, Failed []json.RawMessage }
	json.Unmarshal(o.body, &reply) // a page and an error have neither
	c.Messages, c.Failed = len(reply.Messages), len(reply.Failed)
}

// sleep reports whether d passed before the server closed.
func (s *Server) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

// hold reports whether Release came before the server closed.
func (s *Server) hold() bool {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	select {
	case <-held:
		return true
	case <-s.done:
		return false
	}
}

// object reads a document of which the caller knows that it is one.
func object(b []byte) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &fields); err != nil {
		panic(fmt.Sprintf("sqsfake: %v", err))
	}
	return fields
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sqsfake: %v", err))
	}
	return b
}
