package job

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A paid call's context has the handler's values and ends with the drain time or the timeout, not with the handler.
func TestPaidContext(t *testing.T) {
	type name string
	over := errors.New("over")
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what string
			end  func(handler, drain context.CancelCauseFunc)
			want error
		}{
			{"nothing ends", func(_, _ context.CancelCauseFunc) {}, nil},
			{"the handler ends", func(h, _ context.CancelCauseFunc) { h(over) }, nil},
			{"the drain time ends", func(_, d context.CancelCauseFunc) { d(over) }, over},
			{"the timeout ends", func(_, _ context.CancelCauseFunc) { time.Sleep(2 * time.Minute) }, context.DeadlineExceeded},
		} {
			base := context.WithValue(context.WithValue(t.Context(), name("base"), "base"), name("both"), "base")
			drain, cut := context.WithCancelCause(base)
			handler, stop := context.WithCancelCause(context.WithValue(t.Context(), name("both"), "handler"))
			r := NewRun(RunConfig{Worker: NewWorker(Worker{Paid: drain})})
			paid, cancel := r.paid(handler, time.Minute)
			c.end(stop, cut)
			synctest.Wait()
			if got := context.Cause(paid); got != c.want {
				t.Errorf("%s: the call ends by %v, want %v", c.what, got, c.want)
			}
			if b, h := paid.Value(name("base")), paid.Value(name("both")); b != "base" || h != "handler" {
				t.Errorf("%s: values %v and %v, want base and handler", c.what, b, h)
			}
			cancel()
			stop(nil)
			cut(nil)
		}
	})
}
