package postgres

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(1)
		func() {
			defer func() {
				if v := recover(); v != "a fault" {
					t.Errorf("the caller got the panic %v", v)
				}
			}()
			l.do(t.Context(), func() { panic("a fault") })
		}()

		running, release := make(chan struct{}), make(chan struct{})
		ended := false
		go l.do(t.Context(), func() {
			close(running)
			<-release
			ended = true
		})
		<-running // the lane has outlived the panic
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := l.do(ctx, func() { t.Error("run for a caller that is gone") }); !errors.Is(err, gone) {
			t.Errorf("a full lane and a caller that is gone: %v", err)
		}
		refused := make(chan error, 1)
		go func() { refused <- l.do(t.Context(), func() { t.Error("run after the end") }) }()
		synctest.Wait()
		go func() {
			synctest.Wait()
			close(release)
		}()
		l.close()
		if err := <-refused; !ended || !errors.Is(err, errClosed) {
			t.Errorf("closed: what ran has ended: %t; who waited got %v", ended, err)
		}
		l.close()
		if err := l.do(t.Context(), func() {}); !errors.Is(err, errClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
