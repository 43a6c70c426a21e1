package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
)

// Queue is what there is to say of the broker and the queue's own attributes. A worker
// says it at its start, too.
func Queue(b Broker, w Windows) []Finding {
	j := &judge{b: b, w: w}
	if b.Memory {
		j.say("PO018", Warning, "use it to try things out; set broker.url to amqp://… or sqs:", "memory: lives inside one process; other programs reach this worker through the ledger alone (worker submit), if that is not memory: too")
	}
	switch {
	case errors.Is(b.Err, broker.ErrUnroutable) && b.Declare:
		j.say("PO537", Info, "nothing to do; or create it beforehand", "the queue is not there yet; the first worker creates it")
	case errors.Is(b.Err, broker.ErrUnroutable):
		j.say("PO537", Error, "create it, check its name, its region and the permission sqs:GetQueueUrl, or set broker.declare: true", "%v", b.Err)
	case b.Err != nil:
		j.say("PO536", Error, "read the text: it is the network, broker.url, the credentials, or a permission", "it cannot be reached or used: %v", b.Err)
	case b.RabbitMQ != nil:
		j.rabbitmq(b.RabbitMQ)
	case b.SQS != nil:
		j.sqs(b.SQS)
	}
	j.retention()
	return j.found
}

// judge collects findings about the broker.
type judge struct {
	b     Broker
	w     Windows
	found []Finding
}

func (j *judge) say(code string, level Level, fix, text string, a ...any) {
	j.found = append(j.found, Finding{code, level, "broker", fmt.Sprintf(text, a...), fix})
}

// receives is how many hand-outs a message should have before the broker sets it aside:
// one for each lease that a duplicate waits for, one for each run that may die, and
// three to spare.
func (w Windows) receives() int {
	return int((w.LongestRun+w.Lease-1)/w.Lease) + w.MaxRuns + 3
}

func (j *judge) rabbitmq(d *rabbitmq.Description) {
	for _, q := range []struct {
		code, what string
		rabbitmq.QueueDescription
	}{{"PO537", "queue", d.Queue}, {"PO538", "dead-letter queue", d.DeadLetter}} {
		switch {
		case !q.Exists && j.b.Declare:
			j.say(q.code, Info, "nothing to do; or create it beforehand", "%s %s is not there yet; the first worker creates it", q.what, q.Name)
		case !q.Exists:
			j.say(q.code, Error, "create it, or set broker.declare: true", "%s %s does not exist", q.what, q.Name)
		case q.Unknown != "":
			j.say("PO539", Info, "look with rabbitmqctl list_queues name type arguments", "what %s %s is like cannot be found out: %s", q.what, q.Name, q.Unknown)
		case j.b.Declare && len(q.Differs) > 0:
			j.say("PO540", Error, "name another queue, delete this one once it is empty, or set broker.declare: false", "%s %s is not as the worker would make it, and it will refuse to run: %s", q.what, q.Name, strings.Join(q.Differs, ", "))
		case q.Type != "quorum":
			j.say("PO541", j.typeLevel(q.Type), "use a quorum queue", "%s %s is a %s queue, which counts no hand-outs and can lose messages with its node", q.what, q.Name, q.Type)
		}
	}
	if len(d.Missing) > 0 && !j.b.Declare {
		j.say("PO542", Error, "create them (docs/operations.md), or set broker.declare: true", "retry queues are missing: %s", strings.Join(d.Missing, ", "))
	}
	j.deadLettering(d)
	told := fmt.Sprintf("the worker counts on %s", d.AckTimeout)
	if held := d.AckTimeout / 5 * 4; j.w.LongestRun > held {
		told += fmt.Sprintf(" and hands runs of more than %s to the ledger", held)
	}
	j.say("PO545", Info, fmt.Sprintf("compare: rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).' must say at least %d", d.AckTimeout.Milliseconds()),
		"RabbitMQ tells no client its consumer_timeout; %s", told)
}

// typeLevel: a stream cannot be worked off at all.
func (j *judge) typeLevel(typ string) Level {
	if typ == "stream" {
		return Error
	}
	return Warning
}

// deadLettering looks at what the broker does with a message that was handed out too often.
func (j *judge) deadLettering(d *rabbitmq.Description) {
	q := d.Queue
	if !q.Exists || q.Unknown != "" || q.Type != "quorum" {
		return
	}
	limit := q.DeliveryLimit
	if limit == 0 && major(d.Version) >= 4 {
		limit = 20 // RabbitMQ's own
	}
	if limit != 0 && limit < int64(j.w.receives()) {
		j.say("PO543", Warning, fmt.Sprintf("set x-delivery-limit (or the policy delivery-limit) to %d", max(1000, j.w.receives())),
			"queue %s sets a message aside after %d hand-outs, and every lost connection counts as one; a job may need %d (max_run / lease + max_runs + 3)", q.Name, limit, j.w.receives())
	}
	if limit != 0 && q.DeadLetterTo != d.DeadLetter.Name {
		goes := "are lost"
		if q.DeadLetterTo != "" {
			goes = "go to " + q.DeadLetterTo
		}
		j.say("PO544", Warning, fmt.Sprintf("set x-dead-letter-exchange to \"\" and x-dead-letter-routing-key to %s, unless a policy does", d.DeadLetter.Name),
			"messages that were handed out more than %d times %s; worker dlq reads %s", limit, goes, d.DeadLetter.Name)
	}
}

// major is the first number of a version, 0 if there is none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}
