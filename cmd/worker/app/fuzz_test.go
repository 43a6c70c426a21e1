package app

import (
	"bytes"
	"strings"
	"testing"

	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/cmd/worker/config"
)

// FuzzSubmit: every line of an input is sent and its key printed, or refused with its number; nothing that is sent is
// anything but the line, and nothing panics.
func FuzzSubmit(f *testing.F) {
	c := &call{Process: Process{Environ: []string{"PAIDONCE_LEDGER_URL=memory:", "PAIDONCE_HTTP_LISTEN="}}}
	cfg, err := config.Load(config.Options{Environ: c.Environ, Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()})
	if err != nil {
		f.Fatal(err)
	}
	good := `{"tenant":"acme","ticket":"1","revision":1,"thread":"x"}`
	f.Add("ticket.summary", good+"\n"+good+"\n")
	f.Add("ticket.summary", "\ufeff"+good+"\r\n\r\n{}\n[]\nnull\n")
	f.Add("invoice.extract", `{"tenant":"a","document":"\ud800","revision":-1,"text":"\u0000"}`)
	f.Add("agent.task", `{"tenant":"a:b","task":"%","goal":{"a":1}}`+"\n\x00\n")
	f.Add("content.moderate", strings.Repeat("[", 20000))
	f.Fuzz(func(t *testing.T, name, text string) {
		h, ok := registry(cfg).Lookup(name)
		if !ok {
			return
		}
		q := brokermemory.New(brokermemory.Options{})
		var out, errs bytes.Buffer
		here := &call{Process: Process{Stdout: &out, Stderr: &errs, Queue: q}, ctx: t.Context()}
		s := &submission{call: here, handler: h, queue: &queue{Source: q.Source(), Publisher: q, DeadLetters: q}}
		err := s.all(strings.NewReader(text))
		lines := 0
		for l := range strings.Lines(text) {
			if strings.TrimSpace(l) != "" {
				lines++
			}
		}
		if s.sent+s.refused != lines || (err != nil) != (s.refused > 0) || s.sent != strings.Count(out.String(), "\n") || s.refused > strings.Count(errs.String(), "PO505 line ") {
			t.Fatalf("%d lines: %d sent, %d refused, %v\n%s%s", lines, s.sent, s.refused, err, &out, &errs)
		}
		if got := q.Depth(); got.Ready != s.sent {
			t.Fatalf("%d messages of %d", got.Ready, s.sent)
		}
	})
}
