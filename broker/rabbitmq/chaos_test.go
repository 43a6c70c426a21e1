package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// TestKill9LosesNothing is case 80: messages hop through a retry queue all the time
// while the broker is killed, twice. Every one must still be there at the end, and
// be acknowledged once it is.
func TestKill9LosesNothing(t *testing.T) {
	const n = 300
	b := newBench(t)
	b.conf.Retry, b.conf.Prefetch = []time.Duration{200 * time.Millisecond}, 100
	r := b.open()
	declared := time.Now()
	var bodies []string
	for i := range n {
		bodies = append(bodies, fmt.Sprint(i))
	}
	b.publish(r, bodies...)

	var mu sync.Mutex
	hops, finish := 0, false
	done := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for {
				ds, err := r.Receive(ctx, 5)
				if err != nil {
					return
				}
				for _, d := range ds {
					mu.Lock()
					last := finish
					mu.Unlock()
					for { // until it is settled, or the broker has it
						sctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
						if last {
							err = r.Ack(sctx, d)
						} else {
							err = r.Nack(sctx, d, time.Millisecond)
						}
						cancel()
						if err == nil || errors.Is(err, broker.ErrNotHeld) || ctx.Err() != nil {
							break
						}
					}
					mu.Lock()
					switch {
					case err != nil:
					case last:
						done[string(d.Body)]++
					default:
						hops++
					}
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(time.Until(declared.Add(rabbittest.SettleTime)))
	for range 2 {
		b.srv.Kill9(t)
		b.srv.Restart(t)
		mu.Lock()
		before := hops
		mu.Unlock()
		b.eventually("hopping again", func() bool { mu.Lock(); defer mu.Unlock(); return hops > before+n })
	}
	mu.Lock()
	finish = true
	mu.Unlock()
	b.eventually("every message is acknowledged", func() bool { mu.Lock(); defer mu.Unlock(); return len(done) == n })
	b.wantDepth(0, 0)
	stop()
	workers.Wait()
	b.close(r)
	b.wantDead(b.open(), nil)
	extra := -n
	for _, c := range done {
		extra += c
	}
	s := r.State()
	t.Logf("%d hops, %d acknowledged twice, doubled %d, taken back %d, reconnects %v", hops, extra, s.Doubled, s.TakenBack, s.Reconnects)
	if s.Generation != 3 || s.Reconnects[rabbitmq.LostConnection] < 4 {
		t.Errorf("the broker was killed twice under both connections: %+v", s)
	}
}
