package doctor

import (
	"fmt"
	"path"
	"time"

	"github.com/paidonce/paidonce/broker/sqs"
)

const (
	// MinVisibility is three times what one extension may take at SQS: a second until it is
	// looked at, five for the request. Two may go wrong.
	MinVisibility = 3 * (time.Second + 5*time.Second)
	// maxHold is how long SQS hides a message at most.
	maxHold = 12 * time.Hour
)

func (j *judge) sqs(d *sqs.Description) {
	name := path.Base(d.URL)
	if j.w.Visibility == 0 && d.Visibility < MinVisibility {
		j.say("PO549", Error, fmt.Sprintf("set the queue's VisibilityTimeout, or consumer.visibility, to at least %s", MinVisibility),
			"queue %s hides a message for %s: after two failed extensions it is handed out again while its job runs", name, d.Visibility)
	}
	if d.Visibility < j.w.Visibility {
		j.say("PO552", Warning, "set the queue's VisibilityTimeout to the same",
			"queue %s hides a message for %s, consumer.visibility is %s: whoever else reads it uses the shorter one", name, d.Visibility, j.w.Visibility)
	}
	if d.MaxReceives > 0 && d.MaxReceives < j.w.receives() {
		j.say("PO543", Warning, fmt.Sprintf("set maxReceiveCount to %d", max(1000, j.w.receives())),
			"queue %s sets a message aside after %d receives; a job may need %d (max_run / lease + max_runs + 3)", name, d.MaxReceives, j.w.receives())
	}
	if j.w.LongestRun >= maxHold {
		j.say("PO553", Warning, "lower max_run, or split the job", "max_run %s is not below the %s for which SQS hides a message", j.w.LongestRun, maxHold)
	}
	switch {
	case !d.Dead.Configured && j.b.Declare, d.Dead.Configured && !d.Dead.Exists && j.b.Declare:
		j.say("PO538", Info, "nothing to do; or create it beforehand", "queue %s has no dead-letter queue yet; the first worker creates it", name)
	case !d.Dead.Configured:
		j.say("PO538", Error, "give the queue a redrive policy, set broker.dead_letter, or set broker.declare: true", "queue %s has no dead-letter queue", name)
	case !d.Dead.Exists:
		j.say("PO538", Error, "create it, or set broker.declare: true", "the dead-letter queue of %s does not exist", name)
	default:
		j.deadQueue(name, d)
	}
}

// deadQueue looks at a dead-letter queue that is there.
func (j *judge) deadQueue(name string, d *sqs.Description) {
	dead := path.Base(d.Dead.URL)
	if d.FIFO != d.Dead.FIFO {
		j.say("PO546", Error, "name a dead-letter queue of the same type", "of queue %s and its dead-letter queue %s only one is FIFO", name, dead)
	}
	if d.RedriveTarget != "" && d.RedriveTarget != d.Dead.ARN {
		j.say("PO544", Warning, "make both the same: broker.dead_letter, or the redrive policy", "what is received too often goes to %s; worker dlq reads %s", d.RedriveTarget, dead)
	}
	if all := d.Retention + d.Dead.Retention; j.w.KeyRetention < all {
		j.say("PO547", Warning, fmt.Sprintf("raise retention.key above %s", all),
			"retention.key %s is shorter than a message can lie in %s and %s: one that is redriven late would be paid again", j.w.KeyRetention, name, dead)
	}
	if !d.FIFO && d.Dead.Retention <= d.Retention {
		j.say("PO548", Warning, "set its MessageRetentionPeriod to 14 days",
			"%s keeps messages for %s and %s for %s, both counted from when they were sent: dead letters vanish soon or at once", dead, d.Dead.Retention, name, d.Retention)
	}
	if d.Dead.MaxMessage < d.MaxMessage {
		j.say("PO554", Warning, fmt.Sprintf("set its MaximumMessageSize to %d", d.MaxMessage),
			"%s takes messages of %d bytes, %s of %d: a large one cannot be set aside", dead, d.Dead.MaxMessage, name, d.MaxMessage)
	}
}
