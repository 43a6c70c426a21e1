package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

// word is a row of a fake statement, which says its ask back.
type word struct {
	place
	text string
}

// bed is a group on one lane, whose statements take a second each.
type bed struct {
	*testing.T
	*group[string, word]
	batches []string // what the statements were for, in order
	fails   func([]string) error
	ended   []context.Context // of batches that were ended from outside
}

func newBed(t *testing.T) *bed { return newBedOn(t, 1) }

func newBedOn(t *testing.T, lanes int) *bed {
	b := &bed{T: t, fails: func([]string) error { return nil }}
	b.group = newGroup(newLanes(lanes), b.statement)
	t.Cleanup(b.lanes.close)
	return b
}

func (b *bed) statement(ctx context.Context, asks []*string) ([]word, error) {
	texts := column(asks, func(a *string) string { return *a })
	b.batches = append(b.batches, strings.Join(texts, " "))
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		b.ended = append(b.ended, ctx)
		return nil, ctx.Err()
	}
	if err := b.fails(texts); err != nil {
		return nil, err
	}
	var words []word
	for i, a := range slices.Backward(texts) { // rows come in any order
		if a != "none" {
			words = append(words, word{place{i + 1}, a})
		}
	}
	return words, nil
}

// ask asks from a goroutine of its own, once those before wait, and returns what it gets.
func (b *bed) ask(ctx context.Context, a string) <-chan string {
	got := make(chan string, 1)
	go func() {
		text := "it ended"
		defer func() {
			if f, ok := recover().(*fallen); ok {
				text = fmt.Sprint("panic: ", f.value)
				if !strings.Contains(string(f.stack), "postgres.fallsHere(") {
					text += " somewhere"
				}
			}
			got <- text
		}()
		w, err := b.do(ctx, &a)
		if err != nil {
			text = err.Error()
			return
		}
		text = w.text
	}()
	synctest.Wait()
	return got
}

func (b *bed) asks(texts ...string) (got []<-chan string) {
	for _, a := range texts {
		got = append(got, b.ask(b.Context(), a))
	}
	return got
}

func (b *bed) want(got []<-chan string, want ...string) {
	b.Helper()
	for i, c := range got {
		if text := <-c; text != want[i] {
			b.Errorf("ask %d got %q, want %q", i, text, want[i])
		}
	}
}

func (b *bed) made(want ...string) {
	b.Helper()
	if !slices.Equal(b.batches, want) {
		b.Errorf("statements for %q, want %q", b.batches, want)
	}
}

// TestGroup: the first goes at once and alone, who comes meanwhile goes together.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		begun := time.Now()
		b.want(b.asks("a", "b", "none", "c"), "a", "b", ledger.ErrNotFound.Error(), "c")
		b.made("a", "b none c")
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("it took %s, want two statements of a second", d)
		}
	})
}

// TestGroupInCrowds: nothing begins beside a statement for many, nor beside as many lone ones, until it is late.
func TestGroupInCrowds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBedOn(t, 7)
		begun := time.Now()
		got := append(b.asks("a", "b", "c", "d", "e"), b.asks("f", "g", "h", "i", "j")...)
		time.Sleep(patience) // the first five are late
		synctest.Wait()
		got = append(got, b.asks("x", "y")...)
		b.want(got, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "x", "y")
		b.made("a", "b", "c", "d", "e", "f g h i j", "x y")
		if d := time.Since(begun); d != 2*patience+time.Second {
			t.Errorf("the last ended after %s", d)
		}
	})
}

// TestGroupGoexit: a statement that ends its goroutine ends those who asked for it, and nobody else.
func TestGroupGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.key = func(a *string) any { return (*a)[:1] }
		b.fails = func(texts []string) error {
			if slices.Contains(texts, "a1") {
				runtime.Goexit()
			}
			return nil
		}
		b.want(b.asks("first", "a1", "b", "a2"), "first", "it ended", "it ended", "a2")
		b.want(b.asks("a1"), "it ended")
		b.want(b.asks("last"), "last")
		b.made("first", "a1 b", "a2", "a1", "last")
		rest(t, b.lanes)
	})
}

// TestGroupHoldsRepeatsBack: no two of one key are in a batch, and they stay in order.
func TestGroupHoldsRepeatsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.key = func(a *string) any { return (*a)[:1] }
		b.want(b.asks("a1", "a2", "a3", "b1", "a4", "b2"), "a1", "a2", "a3", "b1", "a4", "b2")
		b.made("a1", "a2 b1", "a3 b2", "a4")
	})
}

func TestGroupBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		first, rest := b.asks("first"), b.asks(slices.Repeat([]string{"x"}, batchSize+1)...)
		b.want(first, "first")
		b.want(rest, slices.Repeat([]string{"x"}, batchSize+1)...)
		b.made("first", strings.Repeat("x ", batchSize-1)+"x", "x")

		b = newBed(t)
		b.key, b.size = func(a *string) any { return (*a)[:1] }, func(a *string) int { return len(*a) * batchBytes / 4 }
		b.want(b.asks("first", "a1", "a2", "b1", "c1", "a3"), "first", "a1", "a2", "b1", "c1", "a3")
		b.made("first", "a1 b1", "a2 c1", "a3")
	})
}

// TestGroupAndWhoLeaves: who waits is withdrawn, who is in a batch harms nobody, and a batch
// that nobody waits for is ended.
func TestGroupAndWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.key = func(a *string) any { return (*a)[:1] }
		leaving := func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ctx, func() { cancel(errors.New("gone")); synctest.Wait() }
		}
		one, leaveOne := leaving()
		two, leaveTwo := leaving()
		got := b.asks("first")
		got = append(got, b.ask(one, "waits"), b.ask(t.Context(), "a1"), b.ask(two, "b1"), b.ask(two, "a2"))
		leaveOne()
		time.Sleep(1500 * time.Millisecond) // a1 and b1 are under way, a2 is held back
		leaveTwo()
		b.want(got, "first", "gone", "a1", "gone", "gone")
		b.made("first", "a1 b1")

		both, leaveBoth := leaving()
		got = b.asks("first")
		got = append(got, b.ask(both, "a1"), b.ask(both, "b1"))
		time.Sleep(1500 * time.Millisecond)
		begun := time.Now()
		leaveBoth()
		b.want(got, "first", "gone", "gone")
		b.want(b.asks("next"), "next") // the lane is free
		if d := time.Since(begun); d != time.Second || len(b.ended) != 1 {
			t.Errorf("the next statement came after %s, %d were ended", d, len(b.ended))
		}
	})
}

// TestGroupWithoutLimit: callers without a limit of their own do not hold a lane for ever.
func TestGroupWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		slow := b.group.run
		b.group.run = func(ctx context.Context, asks []*string) ([]word, error) {
			if len(asks) > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return slow(ctx, asks)
		}
		b.want(b.asks("first", "a", "b"), "first", context.DeadlineExceeded.Error(), context.DeadlineExceeded.Error())
	})
}

// TestGroupFails: who is to blame fails alone, and what is everybody's, or not known, everybody
// is told.
func TestGroupFails(t *testing.T) {
	refusal := func(code string) error {
		return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: code, Message: "no"}
	}
	fatal := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "XX000", Message: "no"}
	for _, c := range []struct {
		err   error
		alone bool
	}{
		{refusal("23514"), true}, {refusal("P0001"), true}, {refusal("22003"), true}, {refusal("55P03"), true},
		{refusal("40P01"), true}, {fmt.Errorf("wrapped: %w", refusal("23514")), true},
		{refusal("57014"), false}, {refusal("53100"), false}, {refusal("58030"), false}, {fatal, false}, {errors.New("cut"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.fails = func(asks []string) error {
				if slices.Contains(asks, "bad") {
					return c.err
				}
				return nil
			}
			got := b.asks("first", "a", "bad", "b")
			if c.alone {
				b.want(got, "first", "a", c.err.Error(), "b")
				slices.Sort(b.batches)
				b.made("a", "a bad b", "b", "bad", "first")
			} else {
				b.want(got, "first", c.err.Error(), c.err.Error(), c.err.Error())
				b.made("first", "a bad b")
			}
		})
	}
}

func TestGroupPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.fails = func(asks []string) error {
			if asks[0] == "a" {
				fallsHere()
			}
			return nil
		}
		b.want(b.asks("first", "a", "b"), "first", "panic: a fault", "panic: a fault")
		b.want(b.asks("a"), "panic: a fault")
		b.want(b.asks("next"), "next") // the lane has outlived it
	})
}

func TestGroupClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.key = func(a *string) any { return *a }
		got := b.asks("first", "a", "b")
		time.Sleep(1500 * time.Millisecond) // a and b are under way
		late := b.asks("late")
		b.lanes.close()
		b.want(got, "first", "a", "b")
		b.want(late, errClosed.Error())
		b.want(b.asks("after"), errClosed.Error())
	})
}

// TestGroupCalls: however many wait, one lane is asked to come, and a second one for those that a full batch leaves.
func TestGroupCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		got := b.asks("first", "a", "b", "c")
		if n := len(b.lanes.calls); n != 1 {
			t.Errorf("%d lanes are asked for, want 1", n)
		}
		b.want(got, "first", "a", "b", "c")
		got = append(b.asks("first"), b.asks(slices.Repeat([]string{"x"}, batchSize+2)...)...)
		b.want(got[:batchSize], append([]string{"first"}, slices.Repeat([]string{"x"}, batchSize-1)...)...)
		synctest.Wait()
		if w, n := b.next(), len(b.lanes.calls); w != nil || n != 0 { // the rest are under way
			t.Errorf("somebody waits still: %t; %d lanes are asked for", w != nil, n)
		}
		b.want(got[batchSize:], "x", "x", "x")
		for _, it := range b.waiting[:cap(b.waiting)] {
			if it != nil {
				t.Error("an ask is kept that was answered")
			}
		}
	})
}

// TestWhatIsAsked: an ask says what it does when it fails, and is not asked when it succeeds.
func TestWhatIsAsked(t *testing.T) {
	id, fault := ledger.ID{1}, errors.New("a fault")
	for want, what := range map[string]fmt.Stringer{
		"gate attempt 01000000-0000-0000-0000-000000000000 of acme:k: a fault": &gateAsk{
			ledger.Lease{Key: ledger.Key{Tenant: "acme", Text: "acme:k"}}, ledger.Attempt{ID: id}},
		"settle attempt 01000000-0000-0000-0000-000000000000 as received: a fault": &settleAsk{
			ledger.AttemptID{Tenant: "acme", ID: id}, ledger.Evidence{State: ledger.Received}},
	} {
		_, err := again(t.Context(), what, func() (int, error) { return 0, fault })
		if !errors.Is(err, fault) || err.Error() != want {
			t.Errorf("it says %q, want %q", err, want)
		}
		if allocs := testing.AllocsPerRun(10, func() { again(t.Context(), what, func() (int, error) { return 0, nil }) }); allocs > 0 {
			t.Errorf("%s: %v allocations for what succeeds", want, allocs)
		}
	}
}
