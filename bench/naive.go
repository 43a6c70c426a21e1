package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
)

// naive is the loop that articles show: insert the key, call, update, acknowledge, one message
// at a time in each goroutine. A crash leaves its keys stuck for ever; it is here for
// what it costs.
var naive = system{
	about:   "naive: insert on conflict do nothing, call, update, ack; one message at a time in each handler",
	prepare: prepareNaive,
	work:    runNaive,
	results: `select count(*) from naive where state = 'done' and octet_length(result) >= $1`,
}

const (
	naiveTable = `create table naive (
		key        text primary key,
		state      text not null default 'running',
		worker     text not null,
		created_at timestamptz not null default now(),
		done_at    timestamptz,
		model      text,
		result     bytea)`
	naiveClaim    = `insert into naive (key, worker) values ($1, 'worker-1') on conflict (key) do nothing`
	naiveLook     = `select state, result from naive where key = $1`
	naiveComplete = `update naive set state = 'done', result = $2, done_at = now(), model = 'gpt-5-mini' where key = $1`
	// naiveWait is before another look at a key that somebody works on.
	naiveWait = 20 * time.Millisecond
)

func prepareNaive(ctx context.Context, p plan) (publisher, error) {
	if err := execute(ctx, p.Postgres, naiveTable); err != nil {
		return nil, err
	}
	return newAMQP(ctx, p)
}

func runNaive(ctx context.Context, w *worker) error {
	pool, err := w.pool(ctx)
	if err != nil {
		return err
	}
	deliveries, err := receive(w.plan)
	if err != nil {
		return err
	}
	w.ready()
	failed := make(chan error, w.Handlers)
	for range w.Handlers {
		go func() {
			for d := range deliveries {
				if err := naiveOne(ctx, w, pool, d); err != nil {
					failed <- err
					return
				}
			}
			failed <- errors.New("the queue's channel is closed")
		}()
	}
	return <-failed
}

func naiveOne(ctx context.Context, w *worker, pool *pgxpool.Pool, d amqp.Delivery) error {
	var m doc
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return err
	}
	key := m.JobKey().String()
	claimed, err := pool.Exec(ctx, naiveClaim, key)
	if err != nil {
		return err
	}
	if claimed.RowsAffected() == 0 {
		return naiveDuplicate(ctx, w, pool, d, key)
	}
	if _, err := pool.Exec(ctx, naiveComplete, key, []byte(w.handle(key))); err != nil {
		return err
	}
	return acknowledge(w, d, key)
}

// naiveDuplicate reads the saved result, or puts the message back for later.
func naiveDuplicate(ctx context.Context, w *worker, pool *pgxpool.Pool, d amqp.Delivery, key string) error {
	var state string
	var result []byte
	if err := pool.QueryRow(ctx, naiveLook, key).Scan(&state, &result); err != nil {
		return err
	}
	if state == "done" {
		return acknowledge(w, d, key)
	}
	time.Sleep(naiveWait)
	return d.Nack(false, true)
}

func acknowledge(w *worker, d amqp.Delivery, key string) error {
	if err := d.Ack(false); err != nil {
		return err
	}
	sent, _ := d.Headers[published].(string)
	w.settled(key, sentAt(sent))
	return nil
}

// receive consumes the queue with the driver alone, as many messages at once as there are
// handlers.
func receive(p plan) (<-chan amqp.Delivery, error) {
	conn, err := amqp.Dial(p.AMQP)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Qos(p.Handlers, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queueName, "", false, false, false, false, nil)
}

// execute runs statements on a connection of its own.
func execute(ctx context.Context, url, sql string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, sql); err != nil {
		return fmt.Errorf("run %.60s: %w", sql, err)
	}
	return nil
}
