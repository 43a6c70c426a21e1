package modelserver_test

import (
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// Every client reads a whole answer, and the bill agrees with it to the token.
func TestAnswer(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			ms := start(t, modelserver.Options{})
			g := c.ask(t.Context(), ms.URL(), noRetries())
			if g.err != nil || !g.complete {
				t.Fatalf("got %+v", g)
			}
			lines := ms.BillByKey()["acme:summarize:1"]
			if len(lines) != 1 || ms.Requests() != 1 || len(ms.Bill()) != 1 {
				t.Fatalf("%d requests, bill %+v", ms.Requests(), ms.Bill())
			}
			l := lines[0]
			if !l.Delivered || l.Fault != "" || l.Stream != c.stream || l.In == 0 || l.Cached == 0 || l.Out == 0 || l.Price == 0 {
				t.Errorf("line %+v", l)
			}
			if c.plain {
				return
			}
			in := g.in
			if l.Provider == modelserver.Anthropic {
				in += g.cached
			}
			if g.text != wantText || g.id != l.ObjectID || in != l.In || g.cached != l.Cached || g.out != l.Out {
				t.Errorf("client got %+v\nline %+v", g, l)
			}
		})
	}
}
