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
