package postgres

import (
	"fmt"
	"slices"
	"testing"
)

// TestGroupsRoom: a group needs as much room as wait at a time, however many came before them, whether they were ever nobody or not.
func TestGroupsRoom(t *testing.T) {
	for _, stay := range []int{0, 1, 100} {
		b := newBedOn(t, 0) // nobody comes: the test takes them
		came, went := 0, 0
		come := func() { a := fmt.Sprint(came); came++; b.wait(&item[string, word]{ask: &a, done: make(chan struct{})}) }
		for range stay {
			come()
		}
		for range 10_000 {
			come()
			if it := b.next(); *it.ask != fmt.Sprint(went) {
				t.Fatalf("%d stay: %s went in place of %d", stay, *it.ask, went)
			}
			went++
		}
		kept := 0
		for _, it := range b.waiting[:cap(b.waiting)] {
			if it != nil {
				kept++
			}
		}
		if room := cap(b.waiting); room > 4*(stay+1) || kept != stay {
			t.Errorf("%d stay: there is room for %d, and %d are kept", stay, room, kept)
		}
	}
}

// TestGroupBoards: a batch that is full takes none of those held back either, and no more are held back than are a batch.
func TestGroupBoards(t *testing.T) {
	b := newBedOn(t, 0) // nobody comes: the test takes them
	b.key, b.size = func(a *string) any { return (*a)[:1] }, func(a *string) int { return len(*a) * batchBytes / 4 }
	items := func(texts ...string) (all []*item[string, word]) {
		for _, a := range texts {
			all = append(all, &item[string, word]{ctx: t.Context(), ask: &a, done: make(chan struct{})})
		}
		return all
	}
	before := items("a1", "b1", "c1", "d1")
	if batch, held := b.board(before); !slices.Equal(batch, before[:2]) || !slices.Equal(held, before[2:]) {
		t.Errorf("of four half as large as a batch %d go and %d are held back", len(batch), len(held))
	}
	b.size = nil
	b.wait(items(slices.Repeat([]string{"a1"}, 3*batchSize)...)...)
	batch, held := b.board(nil)
	if waiting := len(b.waiting) - b.gone; len(batch) != 1 || len(held) != batchSize || waiting != 2*batchSize-1 {
		t.Errorf("of many repeats %d go, %d are held back and %d wait", len(batch), len(held), waiting)
	}
}

// TestGroupOfWhoHasLeft: who leaves as his batch is made up counts as one who left it.
func TestGroupOfWhoHasLeft(t *testing.T) {
	one, two := &item[string, word]{}, &item[string, word]{}
	one.left.Store(true)
	one.leave() // there is no crowd yet
	ctx, stop := together([]*item[string, word]{one, two})
	defer stop()
	if ctx.Err() != nil {
		t.Error("a batch that somebody waits for was ended")
	}
	two.left.Store(true)
	two.leave()
	if ctx.Err() == nil {
		t.Error("a batch that nobody waits for goes on")
	}
}
