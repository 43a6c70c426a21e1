package app

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// What became of another input under the same key is not told as the answer to this one: its message is refused.
func TestSubmitAndWaitForAnotherInput(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	r := w.start()
	if out := w.must(ticket, "submit", "--job", "ticket.summary", "--wait"); !strings.Contains(out, `"state":"done"`) {
		t.Errorf("submit --wait prints %s", out)
	}
	other := strings.Replace(ticket, `"thread":"`, `"thread":"other `, 1)
	if other == ticket {
		t.Fatal("the other ticket is the same")
	}
	if o := w.do(other, "submit", "--job", "ticket.summary", "--wait"); o.code != exitFailed || !strings.Contains(o.stdout, "PO590") || strings.Contains(o.stdout, `"summary"`) || !strings.Contains(o.stderr, "PO593 1 of 1") {
		t.Errorf("exit %d, prints %s%s", o.code, o.stdout, o.stderr)
	}
	r.stop()
	if lines := ms.Bill(); len(lines) != 1 {
		t.Errorf("the bill has %d lines", len(lines))
	}
}
