package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// asynqServer has its queue in Redis, where a key that is there refuses another of its name. The
// result goes into a table.
var asynqServer = system{
	about:   "asynq: Redis that syncs every second, the key as the task's id, the result inserted into Postgres; no other broker",
	unique:  true,
	redis:   true,
	prepare: prepareAsynq,
	work:    runAsynq,
	results: `select count(*) from asynq_result where octet_length(result) >= $1`,
}

// asynqTask is the message.
type asynqTask struct {
	Key  string
	Sent int64 // Unix nanoseconds
	Text string
}

func prepareAsynq(ctx context.Context, p plan) (publisher, error) {
	if err := execute(ctx, p.Postgres, "create table asynq_result (key text primary key, result bytea not null)"); err != nil {
		return nil, err
	}
	if err := onRedis(ctx, p.Redis, func(c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
		return nil, fmt.Errorf("empty Redis: %w", err)
	}
	return asynqPublisher{asynq.NewClient(asynq.RedisClientOpt{Addr: p.Redis})}, nil
}

type asynqPublisher struct{ client *asynq.Client }

// publish has no batches to use.
func (a asynqPublisher) publish(ctx context.Context, ms []doc) error {
	var sends errgroup.Group
	sends.SetLimit(16)
	for _, m := range ms {
		sends.Go(func() error {
			key := m.JobKey().String()
			body, err := json.Marshal(asynqTask{key, time.Now().UnixNano(), m.Text})
			if err != nil {
				return err
			}
			_, err = a.client.EnqueueContext(ctx, asynq.NewTask(action, body), asynq.TaskID(key), asynq.Retention(24*time.Hour), asynq.Timeout(2*time.Hour))
			if errors.Is(err, asynq.ErrTaskIDConflict) {
				return nil
			}
			return err
		})
	}
	return sends.Wait()
}

func (a asynqPublisher) close() { a.client.Close() }

func runAsynq(ctx context.Context, w *worker) error {
	pool, err := w.pool(ctx)
	if err != nil {
		return err
	}
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: w.Redis}, asynq.Config{Concurrency: w.Handlers, LogLevel: asynq.WarnLevel})
	handlers := asynq.NewServeMux()
	handlers.HandleFunc(action, func(ctx context.Context, t *asynq.Task) error { return asynqOne(ctx, w, pool, t) })
	if err := s.Start(handlers); err != nil {
		return err
	}
	w.ready()
	return nil
}

func asynqOne(ctx context.Context, w *worker, pool *pgxpool.Pool, t *asynq.Task) error {
	var task asynqTask
	if err := json.Unmarshal(t.Payload(), &task); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "insert into asynq_result (key, result) values ($1, $2)", task.Key, []byte(w.handle(task.Key))); err != nil {
		return err
	}
	w.settled(task.Key, task.Sent)
	return nil
}
