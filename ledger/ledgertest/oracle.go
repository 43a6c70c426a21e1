package ledgertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// hookOf catches the hook that a typed door makes.
type hookOf struct{ h ledger.Hook }

func (o *hookOf) OnCommit(h ledger.Hook) { o.h = h }

// Memory is the harness of a fresh memory ledger, which the random operations compare
// other ledgers with.
func Memory(t testing.TB) *Harness {
	l := memory.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var marks []string
	hook := func(mark string, err error) ledger.Hook {
		var o hookOf
		memory.OnCommit(&o, func(ctx context.Context) error {
			memory.Then(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				marks = append(marks, mark)
			})
			return err
		})
		return o.h
	}
	return &Harness{
		Store:       l,
		LapseWorker: func(id ledger.WorkerID) { t.Helper(); must(l.LapseWorker(id)) },
		LapseRun:    func(k ledger.Key) { t.Helper(); must(l.LapseRun(k)) },
		MakeDue:     func(k ledger.Key) { t.Helper(); must(l.MakeDue(k)) },
		AgeUnknown:  func(k ledger.Key, d time.Duration) { t.Helper(); must(l.AgeUnknown(k, d)) },
		AgeAttempts: func(k ledger.Key, d time.Duration) { t.Helper(); must(l.AgeAttempts(k, d)) },
		AgeRow:      func(k ledger.Key, d time.Duration) { t.Helper(); must(l.AgeRow(k, d)) },
		AgeMessages: func(d time.Duration) { t.Helper(); must(l.AgeMessages(d)) },
		Hook:        func(mark string) ledger.Hook { return hook(mark, nil) },
		FailingHook: func(err error) ledger.Hook { return hook("failing", err) },
		Marks: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return append([]string(nil), marks...)
		},
	}
}
