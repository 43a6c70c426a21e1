package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// heard is a ledger's count that answers in turn.
type heard struct {
	answers []error
	ids     []ledger.ID
	rows    []int
	sum     int64
}

func (h *heard) count(_ context.Context, id ledger.ID, all []ledger.Avoided) error {
	h.ids, h.rows = append(h.ids, id), append(h.rows, len(all))
	var err error
	if len(h.answers) > 0 {
		err, h.answers = h.answers[0], h.answers[1:]
	}
	if err == nil {
		for _, a := range all {
			h.sum += a.Count
		}
	}
	return err
}

// TestTally: what is written is bounded, repeated as it was, and dropped where it never can be stored.
func TestTally(t *testing.T) {
	const tenants = 2*tallyBatch + 1
	var y tally
	for n := range 3 * tenants {
		y.add(fmt.Sprint("tenant ", n%tenants), "a", ledger.AckLost, new(ledger.Nano(5)))
	}
	away := errors.New("away")
	h := &heard{answers: []error{nil, away}}
	if err := y.flush(t.Context(), h.count); !errors.Is(err, away) {
		t.Fatalf("flush: %v", err)
	}
	y.add("tenant 0", "a", ledger.AckLost, nil) // meanwhile
	if err := y.flush(t.Context(), h.count); err != nil {
		t.Fatal(err)
	}
	if h.sum != 3*tenants+1 || len(h.ids) < 4 || h.ids[1] != h.ids[2] || h.ids[0] == h.ids[1] || h.ids[2] == h.ids[3] || h.rows[1] != h.rows[2] {
		t.Errorf("counted %d in rows %v", h.sum, h.rows)
	}
	for _, n := range h.rows {
		if n > tallyBatch {
			t.Errorf("%d rows at once", n)
		}
	}
	if err := y.flush(t.Context(), func(context.Context, ledger.ID, []ledger.Avoided) error {
		t.Error("there is nothing to write")
		return nil
	}); err != nil {
		t.Error(err)
	}
	y.add("bad", "a", ledger.AckLost, nil)
	h = &heard{answers: []error{ledger.ErrRequest}}
	if err := y.flush(t.Context(), h.count); !errors.Is(err, ledger.ErrRequest) {
		t.Errorf("flush: %v", err)
	}
	y.add("good", "a", ledger.AckLost, new(ledger.Nano(5)))
	if err := y.flush(t.Context(), h.count); err != nil || h.sum != 1 {
		t.Errorf("after what cannot be stored: %v, counted %d", err, h.sum)
	}
}
