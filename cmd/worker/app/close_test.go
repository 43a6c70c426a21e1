package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Each part has its time to end. A second signal shortens it, before the close and during it.
func TestSecondSignalShortensTheClose(t *testing.T) {
	for name, c := range map[string]struct {
		hurry time.Duration // after the close began; negative: before it, 0: never
		want  time.Duration
		cause error
	}{"none": {0, closeTimeout, context.DeadlineExceeded}, "before": {-1, hurriedTimeout, errHurried}, "during": {time.Second, time.Second, errHurried}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &worker{closeAll: []func(context.Context) error{func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}}}
				w.hurried, w.hurry = context.WithCancelCause(context.Background())
				switch {
				case c.hurry < 0:
					w.hurry(errHurried)
				case c.hurry > 0:
					time.AfterFunc(c.hurry, func() { w.hurry(errHurried) })
				}
				at := time.Now()
				if err := w.close(); !errors.Is(err, c.cause) {
					t.Errorf("error %v, want %v", err, c.cause)
				}
				if took := time.Since(at); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
			})
		})
	}
}
