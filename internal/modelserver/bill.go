package modelserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Line is one generation: something was paid for.
type Line struct {
	N           int       `json:"n"` // from 1, in the order of generation
	Time        time.Time `json:"time"`
	Key         string    `json:"key"`                    // business key, as Options.KeyOf sees it
	PromptKey   string    `json:"prompt_key,omitempty"`   // the marker [key:…] in the prompt
	MetadataKey string    `json:"metadata_key,omitempty"` // OpenAI's metadata job_key, Anthropic's user_id
	ClientID    string    `json:"client_id,omitempty"`    // header X-Client-Request-Id
	Provider    string    `json:"provider"`               // OpenAI or Anthropic
	Route       string    `json:"route"`                  // path of the request
	Model       string    `json:"model"`
	Stream      bool      `json:"stream,omitempty"`
	RequestID   string    `json:"request_id"`       // as in the answer's header
	ObjectID    string    `json:"object_id"`        // chatcmpl-…, resp_…, msg_…
	Batch       string    `json:"batch,omitempty"`  // that it is part of
	Tier        string    `json:"tier"`             // that served it, in the provider's word
	In          int64     `json:"in"`               // input tokens, those of the caches included
	Cached      int64     `json:"cached,omitempty"` // of these: read from a cache
	Written     int64     `json:"written,omitempty"`
	Written1h   int64     `json:"written_1h,omitempty"` // of In: written to a cache, for five minutes and for an hour
	Out         int64     `json:"out"`                  // output tokens
	Reasoning   int64     `json:"reasoning,omitempty"`  // of these
	Price       int64     `json:"price"`                // nano USD
	Fault       string    `json:"fault,omitempty"`      // what was done to the answer
	// Delivered: the answer went out in full. It is set just before its last bytes
	// are, so whoever has the answer finds it set.
	Delivered bool `json:"delivered,omitempty"`
}

// Price is what a model costs per token, in nano USD (1 USD a million is 1,000), and
// what the tiers make of it, in tenths.
type Price struct{ In, Cached, Written, Written1h, Out, Flex, Priority int64 }

// Prices of the models that handlers name; others cost Prices[""]. They are the providers' own, and
// written down here a second time, so that the two can be compared.
var Prices = map[string]Price{
	"gpt-5":             {1250, 125, 1250, 1250, 10000, 5, 20},
	"gpt-5-mini":        {250, 25, 250, 250, 2000, 5, 18},
	"claude-sonnet-4-5": {3000, 300, 3750, 6000, 15000, 10, 10},
	"claude-haiku-4-5":  {1000, 100, 1250, 2000, 5000, 10, 10},
	"":                  {1000, 100, 1000, 1000, 4000, 10, 10},
}

// price is the sum for the whole answer, rounded half up to a nano USD at its end.
func price(model, tier string, u usage) int64 {
	p, ok := Prices[model]
	if !ok {
		p = Prices[""]
	}
	tenths := int64(10)
	switch tier {
	case "flex":
		tenths = p.Flex
	case "priority":
		tenths = p.Priority
	case "batch":
		tenths = 5
	}
	sum := (u.in-u.cached-u.written-u.written1h)*p.In + u.cached*p.Cached + u.written*p.Written + u.written1h*p.Written1h + u.out*p.Out
	return (sum*tenths + 5) / 10
}

// bill keeps the lines, and a file of them if there is one.
type bill struct {
	mu      sync.Mutex
	lines   []Line
	file    *os.File      // nil: none
	changed chan struct{} // closed and replaced at every change
}

func openBill(path string) (*bill, error) {
	b := &bill{changed: make(chan struct{})}
	if path == "" {
		return b, nil
	}
	var err error
	if b.lines, err = ReadBill(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the bill: %w", err)
	}
	return b, nil
}

// add numbers the line and writes it down. Nothing may be generated without it.
func (b *bill) add(l Line) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.N, l.Time = len(b.lines)+1, time.Now()
	if err := b.write(l); err != nil {
		return 0, err
	}
	b.lines = append(b.lines, l)
	b.tell()
	return l.N, nil
}

// delivery notes whether the answer of line n went out.
func (b *bill) delivery(n int, done bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.lines[n-1]
	if l.Delivered == done {
		return nil
	}
	l.Delivered = done
	b.tell()
	return b.write(struct {
		N         int  `json:"n"`
		Delivered bool `json:"delivered"`
	}{n, done})
}

// write appends one record in one system call, so that a killed process leaves
// whole lines.
func (b *bill) write(record any) error {
	if b.file == nil {
		return nil
	}
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode a line of the bill: %w", err)
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the bill: %w", err)
	}
	return nil
}

func (b *bill) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *bill) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}

// snapshot returns a copy of the lines and a channel that is closed when it is old.
func (b *bill) snapshot() ([]Line, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines), b.changed
}

// waitFor returns the first line, present or to come, that satisfies ok.
func (b *bill) waitFor(ctx context.Context, ok func(Line) bool) (Line, error) {
	for {
		lines, changed := b.snapshot()
		if i := slices.IndexFunc(lines, ok); i >= 0 {
			return lines[i], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Line{}, fmt.Errorf("wait for a line among %d of the bill: %w", len(lines), context.Cause(ctx))
		}
	}
}

// ReadBill reads the file of Options.BillPath, also while a server writes it or
// after one was killed. The file has a line per generation, written before it
// starts, and a short one per delivery, which is folded into it here.
func ReadBill(path string) ([]Line, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the bill: %w", err)
	}
	var lines []Line
	for record := range bytes.Lines(data) {
		var l Line
		if err := json.Unmarshal(record, &l); err != nil {
			return nil, fmt.Errorf("read the bill %s: %w in %q", path, err, record)
		}
		switch {
		case l.N == len(lines)+1 && l.Route != "":
			lines = append(lines, l)
		case l.N >= 1 && l.N <= len(lines) && l.Route == "":
			lines[l.N-1].Delivered = l.Delivered
		default:
			return nil, fmt.Errorf("read the bill %s: line %q is out of order; do two servers write it?", path, record)
		}
	}
	return lines, nil
}

// byKey groups lines by business key.
func byKey(lines []Line) map[string][]Line {
	m := make(map[string][]Line)
	for _, l := range lines {
		m[l.Key] = append(m[l.Key], l)
	}
	return m
}
