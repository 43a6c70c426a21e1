package app

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestAppliedIsShown: whether rows of the user's for an answer are committed, and when.
func TestAppliedIsShown(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for shown, a := range map[string]ledger.AttemptRow{`"applied_at":"2026-03-01T12:00:00Z"`: {State: ledger.Received, Applied: at}, "": {State: ledger.Received}} {
		d := attempt(a)
		b, err := json.Marshal(d)
		if err != nil || strings.Contains(string(b), "applied_at") != (shown != "") || !strings.Contains(string(b), shown) {
			t.Errorf("%v: %s, want %q in it", err, b, shown)
		}
		if said := slices.Contains(outcomeOf(d), "rows committed"); said != (shown != "") {
			t.Errorf("said in words: %v", said)
		}
	}
}
