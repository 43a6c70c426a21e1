package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
)

// request is one line of the provider's log.
type request struct {
	attempt string // as the client named it
	name    string // of the attempt, in traces
	key     string
	call    string // "do": an effect, which costs nothing
	node    *mortal.Node
	at      time.Time
	done    time.Time // when the answer was ready
	ran     bool      // it was executed, and billed
	cost    ledger.Nano
	text    string // of the answer
	object  []byte
	heard   time.Time // when the whole answer was with a worker that lived; zero: never
}

// manner is how the provider treats a request.
type manner struct {
	what string
	took time.Duration
	ran  bool
}

// manners are the ways of a provider on a bad day.
var manners = []manner{
	{"answers", 0, true}, {"answers", 0, true}, {"answers", 0, true}, {"answers", 0, true},
	{"is slow", 0, true}, {"429", 0, false}, {"500", 0, false}, {"502", 0, false}, {"502 after all", 0, true},
	{"cuts", 0, true}, {"cuts before", 0, false}, {"half", 0, true},
}

// serve answers what is dialled until the listener is closed.
func (w *world) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.conns.Go(func() { w.answer(c.(*mortal.Conn)) })
	}
}

// answer reads a request, writes it down, and answers it as the seed wants it.
func (w *world) answer(c *mortal.Conn) {
	defer c.Close()
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	var asked struct{ Key, Call, Model string }
	body, err := io.ReadAll(req.Body)
	if err != nil || json.Unmarshal(body, &asked) != nil {
		return
	}
	r := &request{attempt: req.Header.Get("X-Client-Request-Id"), key: asked.Key, call: asked.Call, node: c.From, at: time.Now()}
	m := w.arrived(r, asked.Model)
	time.Sleep(m.took)
	head, out := "", r.object
	switch m.what {
	case "answers", "is slow", "half":
		head = "200 OK"
	case "429":
		head, out = "429 Too Many Requests", []byte(`{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`)
	case "500":
		head, out = "500 Internal Server Error", []byte(`{"error":{"message":"an error","type":"server_error","code":null}}`)
	case "502", "502 after all":
		head, out = "502 Bad Gateway", []byte("bad gateway")
	default:
		w.say("provider", "%s %s", m.what, r.name)
		return
	}
	whole := fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", head, len(out), out)
	if m.what == "half" {
		whole = whole[:len(whole)-len(out)/2]
	}
	_, err = c.Write(whole)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.ran && head == "200 OK" && m.what != "half" && err == nil && !c.From.Gone() && !c.From.Frozen() {
		r.heard = time.Now()
	}
	if err == nil { // else a worker's end closed it, and others with it at the same instant
		w.note("provider", "answers %s: %s", r.name, head)
	}
}

// arrived writes a request down and says how it is treated.
func (w *world) arrived(r *request, model string) manner {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := r.key + "/" + r.call
	w.arrivals[name]++
	id := fmt.Sprintf("provider %s %d", name, w.arrivals[name])
	r.name = w.attempts[r.attempt]
	c, m := w.plan.chance, manners[0]
	if time.Now().Before(w.calm) && !w.plan.off[id] {
		m = manners[c.below(len(manners), id)]
	}
	m.took = c.between(500*time.Millisecond, 20*time.Second, id, "took")
	switch {
	case m.what == "is slow":
		m.took += routeTime
	case r.call == "do" && m.what == "half":
		m.what = "cuts" // nothing says that an effect's answer must be whole
	}
	if m.what != "answers" {
		w.misfortunes = append(w.misfortunes, id)
	}
	r.ran, r.done, r.text = m.ran, r.at.Add(m.took), fmt.Sprintf("answer %d to %s", w.arrivals[name], name)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":10,"total_tokens":%d}`, 10+w.arrivals[name], 20+w.arrivals[name])
	r.object = fmt.Appendf(nil, `{"id":"chatcmpl-%s","object":"chat.completion","created":946684800,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],%s}`, r.attempt, model, r.text, usage)
	if r.ran && r.call != "do" {
		r.cost = ledger.Nano(10+w.arrivals[name]+10) * 1000 // a dollar for a million tokens of both kinds
	}
	w.bill = append(w.bill, r)
	w.note("provider", "gets %s from %s, %s", r.name, r.node.Name, m.what)
	w.wired(r)
	return m
}

// lag is how long the provider's list is behind.
const lag = 50 * time.Second

// known is what the provider's list says of an attempt; nil: nothing.
func (w *world) known(attempt string) *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.bill {
		if r.attempt == attempt && r.ran && !time.Now().Before(r.at.Add(lag)) {
			return r
		}
	}
	return nil
}

// ranAny is whether an attempt was executed, in truth.
func (w *world) ranAny(attempt string) *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.bill {
		if r.attempt == attempt && r.ran {
			return r
		}
	}
	return nil
}

// contentOf reads the text of an answer.
func contentOf(object []byte) (string, error) {
	var doc struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(bytes.NewReader(object)).Decode(&doc); err != nil || len(doc.Choices) != 1 {
		return "", fmt.Errorf("no answer in %q: %w", object, err)
	}
	return doc.Choices[0].Message.Content, nil
}
