package sqs_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/sqsfake"
)

// With an instant handler a job costs at most 0.35 calls: receive, delete and extend
// together.
func TestCallsPerJob(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		const jobs, workers = 2000, 64
		s.srv.SendBodies(s.queue, numbered(jobs)...)
		for _, action := range []string{"ReceiveMessage", "DeleteMessageBatch"} { // as far away as AWS is
			s.srv.Script(sqsfake.Fault{Action: action, Before: 5 * time.Millisecond, After: 5 * time.Millisecond, Times: -1})
		}
		slots := make(chan struct{}, workers)
		for done := 0; done < jobs; {
			slots <- struct{}{}
			free := 1
			for free < workers {
				select {
				case slots <- struct{}{}:
					free++
					continue
				default:
				}
				break
			}
			ds, err := b.Receive(s.Context(), min(free, jobs-done))
			s.ok("receive", err)
			for range free - len(ds) {
				<-slots
			}
			done += len(ds)
			for _, d := range ds {
				go func() {
					if err := b.Ack(s.Context(), d); err != nil {
						t.Error(err)
					}
					<-slots
				}()
			}
		}
		for range workers {
			slots <- struct{}{}
		}
		s.depth(0, 0)
		calls := s.srv.Count("ReceiveMessage", "DeleteMessage*", "ChangeMessageVisibility*")
		if per := float64(calls) / jobs; per > 0.35 {
			t.Errorf("%.3f calls per job", per)
		} else {
			t.Logf("%.3f calls per job", per)
		}
	})
}

// While every receive comes back full, more are open at once.
func TestMorePollsWhileAllAreFull(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		const n = 400
		s.srv.SendBodies(s.queue, numbered(n)...)
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", After: time.Second, Times: -1})
		at := time.Now()
		ds := s.receive(b, n, 29*time.Second) // one after the other it would be 40 s
		if took := time.Since(at); took > 15*time.Second {
			t.Errorf("took %v", took)
		}
		seen := map[string]bool{}
		for _, d := range ds {
			seen[string(d.Body)] = true
		}
		if len(seen) != n || s.srv.Count("ReceiveMessage") != n/10 {
			t.Errorf("%d messages with %d receives, want %d with %d", len(seen), s.srv.Count("ReceiveMessage"), n, n/10)
		}
		s.ackAll(b, ds)
		s.depth(0, 0)
	})
}
