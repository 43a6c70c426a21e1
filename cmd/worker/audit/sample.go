package audit

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Sample writes a log of n calls as a gateway would: three kinds of work, with what happens to them in
// production. The same seed writes the same log.
func Sample(w io.Writer, n int, seed uint64) error {
	s := &sample{rng: rand.New(rand.NewPCG(seed, seed)), now: time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)}
	out := bufio.NewWriterSize(w, 1<<16)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for range n {
		if err := lines.Encode(s.next()); err != nil {
			return err
		}
	}
	return out.Flush()
}

// logged is a line of the sample.
type logged struct {
	Time          time.Time      `json:"time"`
	Job           string         `json:"job"`
	Tenant        string         `json:"tenant"`
	Entity        string         `json:"entity"`
	PromptVersion string         `json:"prompt_version"`
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	Status        int            `json:"status"`
	Error         string         `json:"error,omitempty"`
	LatencyMS     int64          `json:"latency_ms"`
	Usage         map[string]int `json:"usage,omitempty"`
	CostUSD       *ledger.Nano   `json:"cost_usd"`
	ResponseID    string         `json:"response_id,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// works are the kinds of work in the sample, with prices in nano-USD for a token.
var works = []struct {
	job, prompt, model, system string
	in, out                    int
	words, answer, pages       int // at most; a page is an image
}{
	{"ticket.summary", "p7", "gpt-5-mini", "Summarise the ticket for the agent who takes it over.", 250, 2000, 120, 90, 0},
	{"invoice.extract", "p3", "claude-sonnet-4-5", "Extract number, supplier, date, currency and total as JSON.", 3000, 15000, 160, 60, 8},
	{"content.moderate", "p1", "gpt-5-nano", "Say whether this breaks the rules, and which.", 50, 400, 40, 12, 0},
}

var words = strings.Fields("the order arrived late and box was open again so customer asks for refund of shipping but not item because support promised call back on monday which never came invoice total net vat due date number account please check attached photo shows label serial warranty until next year thanks regards")

var tenants = []string{"acme", "globex", "initech", "umbrella"}

// sample makes calls in the order of their time.
type sample struct {
	rng     *rand.Rand
	now     time.Time // of the newest call that is not a follow-up
	number  int
	pending followUps
}

// next is the next line: a follow-up that is due, or a call of its own.
func (s *sample) next() logged {
	if s.number == 0 {
		s.advance()
	}
	if len(s.pending) > 0 && s.pending[0].Time.Before(s.now) {
		return heap.Pop(&s.pending).(logged)
	}
	c := s.call()
	s.advance()
	return s.fate(c)
}

// advance goes on to the next call of its own, 20 s later on average.
func (s *sample) advance() {
	s.now = s.now.Add(time.Duration(s.rng.ExpFloat64() * float64(20*time.Second))).Truncate(time.Millisecond)
}

func (s *sample) call() logged {
	s.number++
	w := works[s.rng.IntN(len(works))]
	text := make([]string, w.words/2+s.rng.IntN(w.words))
	for i := range text {
		text[i] = words[s.rng.IntN(len(words))]
	}
	in, out := 40+len(text)*4/3+1600*s.rng.IntN(w.pages+1), w.answer/2+s.rng.IntN(w.answer)
	return logged{Time: s.now, Job: w.job, Tenant: tenants[s.rng.IntN(len(tenants))], Entity: fmt.Sprint(48000 + s.number), PromptVersion: w.prompt, Model: w.model,
		Messages: []message{{"system", w.system}, {"user", strings.Join(text, " ")}}, Status: 200, LatencyMS: 400 + s.rng.Int64N(4000),
		Usage: map[string]int{"prompt_tokens": in, "completion_tokens": out}, CostUSD: new(ledger.Nano(in*w.in + out*w.out)), ResponseID: s.id()}
}

func (s *sample) id() string { return fmt.Sprintf("chatcmpl-%016x", s.rng.Uint64()) }

// fate is what becomes of a call: mostly nothing. The line is what is logged now, what comes later is pending.
func (s *sample) fate(c logged) logged {
	switch p := s.rng.IntN(1000); {
	case p < 12: // it takes longer than the visibility timeout, so SQS hands it out again and again
		c.LatencyMS = 31_000 + s.rng.Int64N(100_000)
		for i := range 1 + c.LatencyMS/31_000 {
			s.again(c, time.Duration(i+1)*30*time.Second+s.between(0, 500*time.Millisecond))
		}
	case p < 22: // two workers receive it
		s.again(c, s.between(20*time.Millisecond, 900*time.Millisecond))
	case p < 28: // it takes longer than the SDK waits
		c.LatencyMS = 600_000 + s.rng.Int64N(60_000)
		s.again(c, 10*time.Minute+s.between(500*time.Millisecond, 2*time.Second))
	case p < 32: // somebody redrives the dead letters
		s.again(c, s.between(time.Hour, 40*time.Hour))
	case p < 42: // the provider refuses it, and the SDK asks again
		s.again(c, s.between(500*time.Millisecond, 8*time.Second))
		c.ended(429, "rate_limit_exceeded")
	case p < 46: // nobody knows what became of it
		s.again(c, s.between(2*time.Second, 9*time.Second))
		c.ended(504, "upstream request timeout")
	case p < 48: // the log has the line twice
		heap.Push(&s.pending, c)
	}
	return c
}

// ended makes a call one without an answer.
func (c *logged) ended(status int, text string) {
	c.Status, c.Error, c.Usage, c.CostUSD, c.ResponseID = status, text, nil, nil, ""
}

// again lets the same call be made once more.
func (s *sample) again(c logged, later time.Duration) {
	c.Time = c.Time.Add(later).Truncate(time.Millisecond)
	c.ResponseID = s.id()
	heap.Push(&s.pending, c)
}

func (s *sample) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.rng.Int64N(int64(b-a)))
}

// followUps is a heap by time.
type followUps []logged

func (f followUps) Len() int           { return len(f) }
func (f followUps) Less(i, j int) bool { return f[i].Time.Before(f[j].Time) }
func (f followUps) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *followUps) Push(x any)        { *f = append(*f, x.(logged)) }
func (f *followUps) Pop() any {
	old := *f
	c := old[len(old)-1]
	*f = old[:len(old)-1]
	return c
}
