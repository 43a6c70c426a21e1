package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/paidonce/paidonce/internal/jitter"
)

// What ends after a while ends then, however long its jitter makes each wait: a message is held meanwhile.
func TestWaitsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer jitter.Decide(func(below int64) int64 { return below - 1 })()
		wait := again(100*time.Millisecond, 5*time.Second)
		wait.MaxElapsedTime = 2 * time.Minute
		wait.Reset()
		began, waits := time.Now(), 0
		for d := wait.NextBackOff(); d != backoff.Stop; d = wait.NextBackOff() {
			time.Sleep(d)
			waits++
		}
		if took := time.Since(began); took > 2*time.Minute || took < time.Minute || waits < 10 {
			t.Errorf("%d waits took %v, want most of two minutes and no more", waits, took)
		}
	})
}
