package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// ours is what this repository is about, with all that it promises: the claim, the mark before
// the call, the answer, and the result are each durable before the next step.
var ours = system{
	about: "paidonce: claim, sent mark, answer and result durable, each before the next step; 4 connections",
	prepare: func(ctx context.Context, p plan) (publisher, error) {
		if err := postgres.Migrate(ctx, p.Postgres); err != nil {
			return nil, err
		}
		return newAMQP(ctx, p)
	},
	work: runOurs,
	results: `select count(*) from paidonce.result r
		join paidonce.job j on j.tenant = r.tenant and j.id = r.job
		join paidonce.response a on a.tenant = r.tenant and a.job = r.job
		where j.state = 'done' and j.attempts = 1 and octet_length(r.body) >= $1 and octet_length(a.body) >= $1`,
}

func runOurs(ctx context.Context, w *worker) error {
	store, err := postgres.Open(ctx, w.Postgres, postgres.Options{})
	if err != nil {
		return err
	}
	source, err := rabbitmq.Open(ctx, rabbitmq.Config{URL: w.AMQP, Queue: queueName, Prefetch: w.Handlers})
	if err != nil {
		return err
	}
	call := job.Call[doc, string]{Name: "read", Routes: []job.Route[doc, string]{{
		Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: 10 * time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, _ doc) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			return w.handle(a.Key().Text), nil
		}}}}
	var handlers job.Registry
	job.Register(&handlers, job.Def[doc, string]{Name: action, Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, d doc) (string, error) { return call.Run(ctx, j, d) }})
	cfg := consumer.Config{Source: &counted{Broker: source, w: w}, Store: store, Handlers: &handlers, Workers: w.Handlers,
		Log:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Trace: consumer.Trace{Ledger: w.renewed}}
	if w.Mode == modeInflight {
		cfg.Lease = 12 * time.Second // renewed every 4
	}
	c, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	if err := c.Run(ctx); err != nil {
		return err
	}
	return errors.New("the consumer ended")
}

// renewed notes how long a renewal of the lease took.
func (w *worker) renewed(op string, took time.Duration, err error) {
	if op != "renew" || err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewals = append(w.renewals, float64(took)/float64(time.Millisecond))
}

// counted is the queue with an eye on what is acknowledged.
type counted struct {
	*rabbitmq.Broker
	w     *worker
	ready sync.Once
}

// Receive says once that the worker is ready.
func (c *counted) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	c.ready.Do(c.w.ready)
	return c.Broker.Receive(ctx, n)
}

// Ack counts what it acknowledged.
func (c *counted) Ack(ctx context.Context, d broker.Delivery) error {
	if err := c.Broker.Ack(ctx, d); err != nil {
		return err
	}
	c.w.settled(d.Attributes[named], sentAt(d.Attributes[published]))
	return nil
}
