package rabbitmq

import (
	"context"
	"time"
)

// RetryQueues are the names of the queues in which given-back messages wait.
func RetryQueues(c Config) []string {
	s, err := c.resolve()
	if err != nil {
		panic(err)
	}
	var names []string
	for _, r := range s.rungs {
		names = append(names, s.rungQueue(r))
	}
	return names
}

// Rung is the delay that a wanted one becomes.
func Rung(c Config, delay time.Duration) time.Duration {
	s, err := c.resolve()
	if err != nil {
		panic(err)
	}
	if delay <= 0 {
		return 0
	}
	return s.rung(delay)
}

// Dial opens and closes a connection as every session does.
func (b *Broker) Dial(ctx context.Context) error {
	l, err := b.dial(ctx, "test")
	if err != nil {
		return err
	}
	return l.conn.Close()
}

// Subscribed says whether the consumer asks for messages just now.
func (b *Broker) Subscribed() bool {
	c := b.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil && c.session.sub != nil
}
