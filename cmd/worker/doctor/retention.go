package doctor

import (
	"fmt"
	"time"
)

// webhookWindow is how long senders of webhooks usually repeat one that was not taken.
const webhookWindow = 3 * 24 * time.Hour

// retention looks at the ways in which a message can come back when its key is forgotten.
// SQS ends messages by itself, and says when.
func (j *judge) retention() {
	if j.w.KeyRetention < webhookWindow {
		j.say("PO555", Warning, fmt.Sprintf("raise retention.key above %s, and above whatever else brings messages back", webhookWindow),
			"retention.key %s is shorter than the %s for which senders of webhooks repeat: one that comes late would be paid again", j.w.KeyRetention, webhookWindow)
	}
	if d := j.b.RabbitMQ; d != nil && d.DeadLetter.Messages > 0 {
		j.say("PO556", Info, "redrive or drop them in time (worker dlq list shows their age), or give the queue a message TTL",
			"%d messages lie in %s until somebody moves them; one that is redriven more than retention.key %s after its job ended is paid again",
			d.DeadLetter.Messages, d.DeadLetter.Name, j.w.KeyRetention)
	}
}
