package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/memory"
)

// TestSuite runs the broker suite over each likeness the queue can take.
func TestSuite(t *testing.T) {
	for name, opts := range map[string]memory.Options{
		"visibility clock":                  {Visibility: time.Minute},
		"held while connected":              {NoDeadline: true},
		"held while connected, ack timeout": {NoDeadline: true, MaxHold: time.Minute},
		"ack timeout":                       {Visibility: time.Minute, MaxHold: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			brokertest.Run(t, func(t *testing.T) *brokertest.Harness { return harness(t, opts) })
		})
	}
}

func harness(t *testing.T, opts memory.Options) *brokertest.Harness {
	opts.MaxBody = 1 << 20
	q := memory.New(opts)
	t.Cleanup(func() { q.Close() })
	source := q.Source()
	maxHold := opts.MaxHold
	if opts.NoDeadline {
		maxHold = 0 // not known to its sources
	}
	return &brokertest.Harness{
		Source:    source,
		Second:    func() broker.Source { return q.Source() },
		Publisher: q,
		MissingQueue: func() broker.Publisher {
			missing := memory.New(opts)
			missing.Delete()
			return missing
		},
		Answers: func() (string, func(context.Context) (broker.Message, error)) {
			q.OpenReplies("answers")
			var all []broker.Message
			return "answers", func(context.Context) (broker.Message, error) {
				if all = append(all, q.Replies("answers")...); len(all) == 0 {
					return broker.Message{}, errors.New("there is no answer")
				}
				m := all[0]
				all = all[1:]
				return m, nil
			}
		},
		Close: func(s broker.Source) error { return s.(*memory.Source).Close() },
		DeadLetters: func(context.Context) ([]brokertest.DeadLetter, error) {
			var ds []brokertest.DeadLetter
			for _, d := range q.DeadLetters() {
				ds = append(ds, brokertest.DeadLetter{Message: d.Message, Reason: d.Reason})
			}
			return ds, nil
		},
		Depth: func(context.Context) (ready, held int, err error) {
			d := q.Depth()
			return d.Ready, d.Held + d.Delayed, nil
		},
		Lapse: func(d broker.Delivery) {
			if err := q.Lapse(d); err != nil {
				t.Errorf("lapse: %v", err)
			}
		},
		Cut:            source.Drop,
		CountsReceives: true,
		Ordered:        true,
		MaxBody:        opts.MaxBody,
		MaxHold:        maxHold,
	}
}
