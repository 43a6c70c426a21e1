package consumer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
)

// What ends after a while ends then, however long its jitter makes each wait: a message is held meanwhile.
func TestWaitsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer jitter.Decide(func(below int64) int64 { return below - 1 })()
		began, tries := time.Now(), 0
		err := repeat(nil, pauses{first: 100 * time.Millisecond, ceil: 5 * time.Second}, 2*time.Minute, func() error {
			tries++
			time.Sleep(time.Second)
			return errAgain
		})
		if took := time.Since(began); err != errAgain || took > 2*time.Minute+time.Second || took < time.Minute || tries < 10 {
			t.Errorf("%d tries took %v and ended with %v, want most of two minutes, and no try that begins later", tries, took, err)
		}
	})
}

var errAgain = errors.New("again")

// What is tried again has these pauses, and ends by its success, a permanent error, or the end that it was given.
func TestRepeat(t *testing.T) {
	defer jitter.Decide(func(below int64) int64 { return below / 2 })()
	closed := make(chan struct{})
	close(closed)
	wrong := errors.New("wrong")
	for _, c := range []struct {
		what    string
		end     chan struct{}
		answers []error
		want    error
		took    []time.Duration // before each try
	}{
		{"at once", nil, []error{nil}, nil, []time.Duration{0}},
		{"at once, although it is over", closed, []error{nil}, nil, []time.Duration{0}},
		{"the third time", nil, []error{errAgain, errAgain, nil}, nil, []time.Duration{0, 4, 6}},
		{"later", nil, []error{errAgain, errAgain, errAgain, errAgain, errAgain, nil}, nil, []time.Duration{0, 4, 6, 9, 10, 10}},
		{"never", nil, []error{errAgain, permanent{wrong}}, wrong, []time.Duration{0, 4}},
		{"over", closed, []error{errAgain}, errAgain, []time.Duration{0}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took []time.Duration
				last := time.Now()
				err := repeat(c.end, pauses{first: 4 * time.Second, ceil: 10 * time.Second}, 0, func() error {
					took, last = append(took, time.Since(last)/time.Second), time.Now()
					return c.answers[len(took)-1]
				})
				if err != c.want || !slices.Equal(took, c.took) {
					t.Errorf("%v after pauses of %v, want %v after %v", err, took, c.want, c.took)
				}
			})
		})
	}
}

// What works again begins with the first pause the next time.
func TestPausesReset(t *testing.T) {
	defer jitter.Decide(func(below int64) int64 { return below / 2 })()
	p := pauses{first: 4 * time.Second, ceil: 10 * time.Second}
	got := []time.Duration{p.next(), p.next()}
	p.reset()
	if got = append(got, p.next()); !slices.Equal(got, []time.Duration{4 * time.Second, 6 * time.Second, 4 * time.Second}) {
		t.Errorf("pauses of %v", got)
	}
}
