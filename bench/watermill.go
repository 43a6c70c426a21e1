package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
)

// watermillRouter has a subscription for each handler, because a subscription of its handles one
// message at a time, and its own Deduplicator on a table. What it records is that a
// message was begun: one whose handler dies is lost.
var watermillRouter = system{
	about:   "watermill: a subscription for each handler, its Deduplicator on a Postgres table, then an update; loses what a crash cuts off",
	prepare: prepareNaive,
	work:    runWatermill,
	results: naive.results,
}

// channelsOfConn is less than the 2,047 channels that RabbitMQ allows on a connection.
const channelsOfConn = 1000

func runWatermill(ctx context.Context, w *worker) error {
	pool, err := w.pool(ctx)
	if err != nil {
		return err
	}
	log := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	router, err := message.NewRouter(message.RouterConfig{}, log)
	if err != nil {
		return err
	}
	router.AddMiddleware(w.countWatermill, (&middleware.Deduplicator{KeyFactory: watermillKey, Repository: begun{pool}, Timeout: time.Minute}).Middleware)
	handle := func(m *message.Message) error {
		key, err := watermillKey(m)
		if err != nil {
			return err
		}
		_, err = pool.Exec(m.Context(), naiveComplete, key, []byte(w.handle(key)))
		return err
	}
	var sub *wamqp.Subscriber
	for i := range w.Handlers {
		if i%channelsOfConn == 0 {
			if sub, err = subscriber(w.AMQP, log); err != nil {
				return err
			}
		}
		router.AddConsumerHandler(fmt.Sprint("handler", i), queueName, sub, handle)
	}
	w.ready()
	return router.Run(ctx)
}

// subscriber opens a connection to the queue, which is there.
func subscriber(url string, log watermill.LoggerAdapter) (*wamqp.Subscriber, error) {
	cfg := wamqp.NewDurableQueueConfig(url)
	cfg.TopologyBuilder, cfg.Marshaler = declared{}, texts{}
	conn, err := wamqp.NewConnection(wamqp.ConnectionConfig{AmqpURI: url}, log)
	if err != nil {
		return nil, err
	}
	return wamqp.NewSubscriberWithConnection(cfg, log, conn)
}

// countWatermill counts what the handlers and the Deduplicator let through to be acknowledged.
func (w *worker) countWatermill(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		out, err := next(m)
		if err != nil {
			return out, err
		}
		key, err := watermillKey(m)
		if err != nil {
			return out, err
		}
		w.settled(key, sentAt(m.Metadata.Get(published)))
		return out, nil
	}
}

func watermillKey(m *message.Message) (string, error) {
	var d doc
	err := json.Unmarshal(m.Payload, &d)
	return d.JobKey().String(), err
}

// begun is what a user of the Deduplicator writes to keep keys for longer than the process lives.
type begun struct{ pool *pgxpool.Pool }

// IsDuplicate records the key.
func (b begun) IsDuplicate(ctx context.Context, key string) (bool, error) {
	done, err := b.pool.Exec(ctx, naiveClaim, key)
	return err == nil && done.RowsAffected() == 0, err
}

// texts leaves out the headers that are no text, which Watermill's own refuses for ever: a quorum
// queue counts deliveries in one.
type texts struct{ wamqp.DefaultMarshaler }

// Unmarshal reads a delivery.
func (t texts) Unmarshal(d amqp.Delivery) (*message.Message, error) {
	maps.DeleteFunc(d.Headers, func(_ string, v any) bool {
		_, ok := v.(string)
		return !ok
	})
	return t.DefaultMarshaler.Unmarshal(d)
}

// declared makes nothing: the queue is there.
type declared struct{}

// BuildTopology does nothing.
func (declared) BuildTopology(*amqp.Channel, wamqp.BuildTopologyParams, wamqp.Config, watermill.LoggerAdapter) error {
	return nil
}

// ExchangeDeclare does nothing.
func (declared) ExchangeDeclare(*amqp.Channel, string, wamqp.Config) error { return nil }
