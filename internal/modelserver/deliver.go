package modelserver

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answer is a generation in the form in which it goes out: the two halves of a
// body, or the events of a stream.
type answer struct {
	stream   bool
	chunks   [][]byte
	terminal int    // index of the first chunk without which it is not complete
	broken   []byte // the event by which the provider ends a stream with an error
}

func (g *generation) answer() answer {
	if !g.Stream {
		body := g.body()
		if g.queued() {
			body = g.response("queued")
		}
		return halves(body)
	}
	a := answer{stream: true}
	switch g.Route {
	case ChatCompletions:
		a.chunks, a.terminal = g.chatEvents()
		a.broken = event("", openaiError(refusals[ServerError]))
	case Responses:
		a.chunks, a.terminal = g.responseEvents()
		// Of the SDKs' own fields only the sequence number depends on where it comes.
		a.broken = event("response.failed", object{
			"type": "response.failed", "sequence_number": a.terminal, "response": g.response("failed")})
	case Messages:
		a.chunks, a.terminal = g.messageEvents()
		a.broken = event("error", anthropicError(refusals[Overloaded529], g.requestID))
	}
	return a
}

// halves is an answer in one piece.
func halves(body object) answer {
	b := encode(body)
	return answer{chunks: [][]byte{b[:len(b)/2], b[len(b)/2:]}, terminal: 1}
}

func (g *generation) body() object {
	switch g.Route {
	case ChatCompletions:
		return g.chatCompletion()
	case Messages:
		content, stop := g.blocks()
		return g.message(content, stop, g.usage.out)
	}
	return g.response("completed")
}

// delivery is one answer on its way to one client.
type delivery struct {
	w       http.ResponseWriter
	r       *http.Request
	fault   Fault
	answer  answer
	hold    func() bool      // until released; false: the client is gone
	settled func(bool) error // the bill's delivered mark
}

// run sends the answer as the fault allows.
func (d delivery) run() error {
	n := len(d.answer.chunks)
	switch d.fault.Kind {
	case Cut, StreamError:
		n = d.passed(n / 2)
	case CleanEnd:
		n = d.passed(d.answer.terminal)
	}
	d.header()
	for i, chunk := range d.answer.chunks[:n] {
		if d.fault.Hold && d.answer.stream && i == d.fault.Events && i > 0 && !d.hold() {
			return nil
		}
		if d.r.Context().Err() != nil {
			return nil // the client is gone, and the bill says so
		}
		last := i == len(d.answer.chunks)-1
		if last {
			if err := d.settled(true); err != nil {
				return err
			}
		}
		if !d.send(chunk) && last {
			return d.settled(false)
		}
	}
	switch d.fault.Kind {
	case Cut:
		d.send(nil) // so that headers are out, whatever Events is
		cutConnection(d.w, false)
	case StreamError:
		d.send(d.answer.broken)
	}
	return nil
}

// passed is how many chunks get through.
func (d delivery) passed(otherwise int) int {
	if d.answer.stream && d.fault.Events > 0 {
		return min(d.fault.Events, d.answer.terminal)
	}
	return otherwise
}

func (d delivery) header() {
	h := d.w.Header()
	if d.answer.stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		return
	}
	h.Set("Content-Type", "application/json")
	if d.fault.Kind != CleanEnd { // a length would show that it is half a body
		h.Set("Content-Length", strconv.Itoa(len(d.answer.chunks[0])+len(d.answer.chunks[1])))
	}
}

// send puts bytes on the wire and reports whether the kernel took them.
func (d delivery) send(chunk []byte) bool {
	_, err := d.w.Write(chunk)
	return err == nil && http.NewResponseController(d.w).Flush() == nil
}

// cutConnection ends the connection under the client, with a TCP reset or without.
func cutConnection(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // a recorder or HTTP/2: the server cuts it its own way
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// refuse says no in the provider's words.
func refuse(w http.ResponseWriter, provider, requestID string, f Fault, no refusal) {
	wait := f.RetryAfter
	if wait == 0 && f.Kind == RateLimit {
		wait = time.Second
	}
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	body := openaiError(no)
	if provider == Anthropic {
		body = anthropicError(no, requestID)
	}
	writeJSON(w, no.status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encode(body)) // an error means that the client is gone
}

// page is a proxy speaking: it knows nothing of request ids.
func page(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Del("X-Request-Id")
	h.Del("Request-Id")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	text := http.StatusText(status)
	fmt.Fprintf(w, "<html><head><title>%[1]d %[2]s</title></head><body><center><h1>%[1]d %[2]s</h1></center></body></html>\n", status, text)
}
