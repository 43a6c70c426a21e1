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
	In          int64     `json:"in"`               // input tokens, cached ones included
	Cached      int64     `json:"cached,omitempty"` // of these
	Out         int64     `json:"out"`              // output tokens
	Price       int64     `json:"price"`            // nano USD
	Fault       string    `json:"fault,omitempty"`  // what was done to the answer
	// Delivered: the answer went out in full. It is set just before its last bytes
	// are, so whoever has the answer finds it set.
	Delivered bool `json:"delivered,omitempty"`
}

// Price is what a model costs per token, in nano USD (1 USD a million is 1,000).
type Price struct{ In, Cached, Out int64 }

// Prices of the models that handlers name; others cost Prices[""].
var Prices = map[string]Price{
	"gpt-5":             {1250, 125, 10000},
	"gpt-5-mini":        {250, 25, 2000},
	"claude-sonnet-4-5": {3000, 300, 15000},
	"claude-haiku-4-5":  {1000, 100, 5000},
	"":                  {1000, 100, 4000},
}

func price(model string, u usage) int64 {
	p, ok := Prices[model]
	if !ok {
		p = Prices[""]
	}
	return (u.in-u.cached)*p.In + u.cached*p.Cached + u.out*p.Out
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
