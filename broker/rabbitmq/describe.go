package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// Description is what RabbitMQ tells a client of itself and of the queues.
type Description struct {
	Version    string        // "3.10.8"
	AckTimeout time.Duration // Config's: RabbitMQ tells nobody its consumer_timeout over AMQP
	Queue      QueueDescription
	DeadLetter QueueDescription
	Missing    []string // retry queues that are not there
}

// QueueDescription is one queue. What a policy of the broker sets does not show.
type QueueDescription struct {
	Name      string
	Exists    bool
	Messages  int // ready
	Consumers int

	Unknown       string   // why the fields below were not learnt; "": they were
	Type          string   // quorum, classic, stream
	DeliveryLimit int64    // 0: none
	DeadLetterTo  string   // the queue, or "exchange/key" of another exchange; "": nowhere
	Differs       []string // from what Config.Declare would give it, "x-delivery-limit is none, not 1000"
}

// Describe asks the broker about the queues, on a connection of its own. It creates and
// changes nothing.
//
// AMQP has no question for a queue's arguments. They are learnt by declaring the queue,
// which is there, with others: the refusal names one that it has. That takes
// the right to configure the queue.
//
// Errors: ErrUnavailable, the cause of ctx.
func (b *Broker) Describe(ctx context.Context) (Description, error) {
	d := Description{AckTimeout: b.cfg.AckTimeout}
	l, err := b.dial(ctx, "describe")
	if err != nil {
		return d, fmt.Errorf("describe %s: %w: %w", b.cfg.Queue, broker.ErrUnavailable, err)
	}
	defer l.kill()
	d.Version = l.version
	err = b.describe(ctx, l, &d)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", broker.ErrUnavailable, b.cfg.secrets.error(err))
	}
	if err != nil {
		return d, fmt.Errorf("describe the queues of %s: %w", b.cfg.Queue, err)
	}
	return d, nil
}

func (b *Broker) describe(ctx context.Context, l *link, d *Description) (err error) {
	for _, q := range b.cfg.topology() {
		var qd QueueDescription
		if qd, err = l.find(ctx, q.name); err != nil {
			return err
		}
		if !qd.Exists && q.name != b.cfg.Queue && q.name != b.cfg.DeadLetter {
			d.Missing = append(d.Missing, q.name)
		}
		switch q.name {
		case b.cfg.Queue:
			d.Queue, err = l.learn(ctx, qd, q.args)
		case b.cfg.DeadLetter:
			d.DeadLetter, err = l.learn(ctx, qd, q.args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// onChannel makes one request on a channel of its own: a refusal closes it.
func (l *link) onChannel(ctx context.Context, request func(*amqp.Channel) error) error {
	return l.do(ctx, callLimit, func() error {
		ch, err := l.conn.Channel()
		if err != nil {
			return err
		}
		if err := request(ch); err != nil {
			return err
		}
		return ch.Close()
	})
}

// find says whether the queue is there.
func (l *link) find(ctx context.Context, name string) (QueueDescription, error) {
	d := QueueDescription{Name: name}
	err := l.onChannel(ctx, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		d.Messages, d.Consumers = q.Messages, q.Consumers
		return err
	})
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.NotFound {
		return d, nil
	}
	d.Exists = err == nil
	return d, err
}

// learn finds out the arguments of a queue that is there, beginning with those that it
// should have.
func (l *link) learn(ctx context.Context, d QueueDescription, want amqp.Table) (QueueDescription, error) {
	args, refused := maps.Clone(want), map[string]int{}
	for tries := 0; d.Exists && tries < maxArguments; tries++ {
		err := l.onChannel(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(d.Name, true, false, false, false, args)
			return err
		})
		if err == nil {
			d.take(args)
			return d, nil
		}
		e, ok := errors.AsType[*amqp.Error](err)
		if !ok || e.Code != amqp.PreconditionFailed && e.Code != amqp.AccessRefused {
			return d, err
		}
		name, current, ok := inequivalent(e.Reason)
		refused[name]++
		if text, isText := current.(string); ok && isText && refused[name] == 2 {
			// Some versions quote numbers too.
			current, err = strconv.ParseInt(text, 10, 64)
			ok = err == nil
		}
		if !ok || refused[name] > 2 {
			d.Unknown = e.Reason
			return d, nil
		}
		if refused[name] == 1 {
			d.Differs = append(d.Differs, fmt.Sprintf("%s is %v, not %v", name, orNone(current), orNone(want[name])))
		}
		if args[name] = current; current == nil {
			delete(args, name)
		}
	}
	if d.Exists {
		d.Unknown = fmt.Sprintf("more than %d of its arguments differ", maxArguments)
	}
	return d, nil
}

// take notes what the arguments say. A classic queue may name no type, and compares
// nothing that is of quorum queues alone; streams have no dead letters.
func (d *QueueDescription) take(args amqp.Table) {
	typ, _ := args["x-queue-type"].(string)
	d.Type = cmp.Or(typ, "classic")
	if d.Type == "quorum" {
		d.DeliveryLimit, _ = args["x-delivery-limit"].(int64)
	}
	exchange, there := args["x-dead-letter-exchange"].(string)
	key, _ := args["x-dead-letter-routing-key"].(string)
	switch {
	case !there || d.Type == "stream":
	case exchange == "":
		d.DeadLetterTo = key
	default:
		d.DeadLetterTo = exchange + "/" + key
	}
}

// maxArguments bounds learn; RabbitMQ compares about twenty.
const maxArguments = 40

// refusal is how RabbitMQ says which argument of a queue is another one.
var refusal = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*: received .* but current is (none|'(.*)'|the value '(.*)' of type '(\w+)')$`)

// inequivalent reads the argument and its current value, nil for none, from a refusal.
func inequivalent(reason string) (name string, current any, ok bool) {
	m := refusal.FindStringSubmatch(reason)
	if m == nil {
		return "", nil, false
	}
	name, text, typ := m[1], m[3]+m[4], m[5]
	switch {
	case m[2] == "none":
		return name, nil, true
	case typ == "" || typ == "longstr":
		return name, text, true
	case typ == "bool":
		return name, text == "true", true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return name, n, err == nil
}

func orNone(v any) any {
	if v == nil {
		return "none"
	}
	return v
}
