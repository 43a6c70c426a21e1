package ledger

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Purger forgets what is past its retention.
type Purger interface {
	// Purge goes once through all that is past its retention, in small steps, and yields
	// each when it is committed. Nothing is locked or held between steps: whoever iterates may
	// wait there to spare others, or stop. Any number of processes may purge at once; their
	// steps take turns.
	//
	// A job that has ended (done, failed or cancelled) and has not changed for r.Result loses
	// its result, its answers and its input (J20). A claim of a done one is told
	// Purged then, and nothing is paid again. One that has not changed for r.Key is
	// forgotten whole (J20k): its key is that of a new job from then on. Open jobs are never
	// touched, however old they are. Stores that drop whole partitions do it some days later.
	// Counts of avoided deliveries go with their day, r.Key after it. What was forgotten is noted by
	// tenant, for reports.
	//
	// An error ends the purge; what was yielded stays done. ErrRequest: r makes no sense.
	Purge(ctx context.Context, r Retention) iter.Seq2[PurgeStep, error]
}

// Retention says how long jobs are kept after they ended and last changed.
type Retention struct {
	Result time.Duration // results, answers and inputs; required, positive
	Key    time.Duration // the job itself, with attempts and history; at least Result
	Batch  int           // rows that a step deletes at most; 0: 1000
}

// PurgeBatch is how many rows a step deletes when nobody says so: some milliseconds.
const PurgeBatch = 1000

// PurgeStep is one step of a purge. A store without partitions sets the counts alone.
type PurgeStep struct {
	Rows      int    // results, answers, inputs, attempts, events and counts; of a dropped partition about
	Keys      int    // jobs that are forgotten whole
	Moved     int    // jobs that are still needed and were moved out of a partition that is to be dropped
	Partition string // that was dropped, or with InUse could not be
	InUse     bool   // others held what the step needed for too long; it is left to the next purge
}

// Rest is how long to wait after a step that took some time, so that others hardly notice a
// purge that nobody waits for: as long again, a second at most. After a partition was dropped
// a minute: claims that come while its file goes are late by as much as 0.1 s, measured with
// 0.3 and 1 GB, so drops should be far apart.
func (s PurgeStep) Rest(took time.Duration) time.Duration {
	if s.Partition != "" && !s.InUse {
		return time.Minute
	}
	return min(took, time.Second)
}

// Check reports what makes no sense, as ErrRequest.
func (r Retention) Check() error {
	switch {
	case r.Result <= 0:
		return fmt.Errorf("%w: results are kept for %s", ErrRequest, r.Result)
	case r.Key < r.Result:
		return fmt.Errorf("%w: keys are kept for %s and results for %s: a key must outlive its result", ErrRequest, r.Key, r.Result)
	case r.Batch < 0:
		return fmt.Errorf("%w: a batch of %d rows", ErrRequest, r.Batch)
	}
	return nil
}
