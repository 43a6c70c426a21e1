package app

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/cmd/worker/config"
)

// TestSubmitLines: every line of an input, however hostile, is sent and its key printed, or refused with its number.
func TestSubmitLines(t *testing.T) {
	cfg, err := config.Load(config.Options{Environ: []string{"PAIDONCE_LEDGER_URL=memory:"}, Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()})
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"tenant":"acme","ticket":"1","revision":1,"thread":"x"}`
	for name, c := range map[string]struct {
		job, text     string
		sent, refused int
	}{
		"good":          {"ticket.summary", good + "\n" + good, 2, 0},
		"empty lines":   {"ticket.summary", "\r\n" + good + "\r\n\n \n", 1, 0},
		"other JSON":    {"ticket.summary", "{}\n[]\nnull\n1\n\"\"\n", 0, 5},
		"a mark":        {"ticket.summary", "\ufeff" + good, 0, 1},
		"surrogate":     {"invoice.extract", `{"tenant":"a","document":"\ud800","revision":-1,"text":"\u0000"}`, 0, 1},
		"zero bytes":    {"agent.task", "\x00\n\xff", 0, 2},
		"deep":          {"content.moderate", strings.Repeat("[", 100_000), 0, 1},
		"a long line":   {"ticket.summary", strings.Repeat("x", maxLine+1) + "\n" + good, 1, 1},
		"without end":   {"ticket.summary", strings.Repeat("x", 3*maxLine), 0, 1},
		"spaces first":  {"ticket.summary", strings.Repeat(" ", 3*maxLine) + "x", 0, 1},
		"as long as is": {"ticket.summary", good[:len(good)-2] + strings.Repeat("x", maxLine-len(good)) + `"}`, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, ok := registry(cfg).Lookup(c.job)
			if !ok {
				t.Fatal("no such job")
			}
			q := brokermemory.New(brokermemory.Options{})
			var out, errs bytes.Buffer
			s := &submission{call: &call{Process: Process{Stdout: &out, Stderr: &errs, Queue: q}, ctx: t.Context()}, handler: h,
				queue: &queue{Source: q.Source(), Publisher: q, DeadLetters: q}}
			err := s.all(strings.NewReader(c.text))
			if s.sent != c.sent || s.refused != c.refused || (err != nil) != (c.refused > 0) || strings.Count(out.String(), "\n") != c.sent || strings.Count(errs.String(), "PO505 line ") != c.refused {
				t.Errorf("%d sent, %d refused, %v\n%s%s", s.sent, s.refused, err, &out, &errs)
			}
			if got := q.Depth(); got.Ready != c.sent {
				t.Errorf("%d messages", got.Ready)
			}
		})
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A line without an end is counted, and not kept.
func TestReadLine(t *testing.T) {
	t.Parallel()
	line, size, err := readLine(bufio.NewReaderSize(io.LimitReader(endless{}, 256<<20), 64<<10))
	if size != 256<<20 || len(line) > maxLine+128<<10 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes are kept of %d: %v", len(line), size, err)
	}
}
