package sqs_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// cancelled is a context that ends after d.
func (s *stage) cancelled(d time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(s.Context())
	time.AfterFunc(d, func() { cancel(errStop) })
	return ctx
}

// Close says what it waits for and how long at most. Its ctx is cancelled meanwhile: the poll is cut at once, and
// the log and the state have it.
func TestCloseThatIsCancelled(t *testing.T) {
	onStage(t, func(s *stage) {
		var j journal
		b := s.open(s.journaled(&j))
		s.stopPolling(b)
		at := time.Now()
		s.ok("close", b.Close(s.cancelled(5*time.Second)))
		if took := time.Since(at); took != 5*time.Second || b.State().Stranded != 1 {
			t.Errorf("close took %v, want 5 s; stranded %d, want 1", took, b.State().Stranded)
		}
		if j.count("closing when the open poll has ended", "polls=1", "at_most=29.3s") != 1 || j.count("poll cut", "polls=1", "visibility=30s") != 1 {
			t.Error("the log does not say that it waits for a poll, or that it cut it")
		}
	})
	onStage(t, func(s *stage) {
		var j journal
		b := s.open(s.journaled(&j))
		s.stopPolling(b)
		ctx, cancel := context.WithTimeout(s.Context(), 8*time.Second)
		defer cancel()
		s.ok("close", b.Close(ctx))
		if j.count("closing when the open poll has ended", "at_most=6s") != 1 {
			t.Error("the log does not say for how long it waits")
		}
	})
	onStage(t, func(s *stage) { // nothing is open: there is nothing to say
		var j journal
		b := s.open(s.journaled(&j))
		at := time.Now()
		s.close(b)
		if j.count("") != 0 || time.Since(at) != 0 {
			t.Errorf("%d lines in the log, after %v", j.count(""), time.Since(at))
		}
	})
}

// What was acknowledged has two seconds after the cancellation, also when that came before Close. What is
// under way then is given up, with a word in the log.
func TestCancelledCloseFlushes(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Second} {
		for _, c := range []struct {
			slow, took time.Duration
			err        error
		}{{after + time.Second, after + time.Second, nil}, {time.Minute, after + 2*time.Second, errStop}} {
			onStage(t, func(s *stage) {
				var j journal
				b := s.open(s.journaled(&j))
				s.srv.SendBodies(s.queue, "x")
				d := s.receive(b, 1, time.Second)[0]
				s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Before: c.slow, Times: -1})
				go b.Ack(s.Context(), d)
				time.Sleep(100 * time.Millisecond)
				ctx := s.cancelled(after)
				synctest.Wait()
				at := time.Now()
				err := b.Close(ctx)
				s.is("close", err, c.err)
				if took := time.Since(at); took > c.took || took < c.took-200*time.Millisecond {
					t.Errorf("close took %v, want %v", took, c.took)
				}
				logged := j.count("closed with requests under way", "settling=1", "visibility=30s")
				if (c.err != nil) != (logged == 1) {
					t.Errorf("logged %d times", logged)
				}
				if c.err != nil {
					s.is("close", err, broker.ErrUnavailable)
				} else {
					s.depth(0, 0)
				}
			})
		}
	}
}

// Close ends every Receive at once, whatever its ctx.
func TestCloseEndsReceives(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		ended := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := b.Receive(context.Background(), 1)
				ended <- err
			}()
		}
		time.Sleep(time.Second)
		at := time.Now()
		go b.Close(context.Background())
		for range 3 {
			s.is("receive", <-ended, broker.ErrClosed)
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("ended after %v", took)
		}
	})
}

// What is being acknowledged when Close comes is left to its ack: a release would hand out again what is done
// with, and on a FIFO queue in front of what is not.
func TestCloseSparesWhatIsBeingSettled(t *testing.T) {
	slow := sqsfake.Fault{Action: "DeleteMessageBatch", Before: 2 * time.Second}
	closing := func(s *stage, d broker.Delivery, b interface {
		broker.Source
		Close(context.Context) error
	}) {
		s.srv.Script(slow)
		acked := make(chan error, 1)
		go func() { acked <- b.Ack(s.Context(), d) }()
		synctest.Wait()
		s.ok("close", b.Close(s.Context()))
		s.ok("ack", <-acked)
	}
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "a", "b")
		ds := s.receive(b, 2, time.Second)
		closing(s, ds[0], b)
		if got := s.changes(); !slices.Equal(got, []string{"b=0"}) {
			t.Errorf("visibility changes %v, want b alone", got)
		}
		s.depth(1, 0)
	})
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		closing(s, s.receiveUpTo(b, 10)[0], b)
		if got := s.changes(); !slices.Equal(got, []string{"g3=0", "g2=0"}) {
			t.Errorf("visibility changes %v, want those behind g1", got)
		}
		s.depth(2, 0)
	})
}
