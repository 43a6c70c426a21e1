package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	amqp "github.com/rabbitmq/amqp091-go"
)

// dbosWorkflow runs a workflow of one step for each message, whose id is the job's key.
var dbosWorkflow = system{
	about: "dbos: a workflow of one step for each message, by the key as its id; replays a step that a crash cut off",
	prepare: func(ctx context.Context, p plan) (publisher, error) {
		if err := dbos.Migrate(ctx, p.Postgres, dbos.WithMigrateLogger(slog.New(slog.DiscardHandler))); err != nil {
			return nil, err
		}
		return newAMQP(ctx, p)
	},
	work: runDBOS,
	results: `select count(*) from dbos.workflow_status join dbos.workflow_output using (workflow_uuid)
		where status = 'SUCCESS' and octet_length(workflow_output.output) >= $1`,
}

// read is the workflow. Its input is the key.
func (w *worker) read(ctx dbos.Context, key string) (string, error) {
	return dbos.RunAsStep(ctx, func(context.Context) (string, error) { return w.handle(key), nil })
}

func runDBOS(ctx context.Context, w *worker) error {
	pool, err := w.pool(ctx)
	if err != nil {
		return err
	}
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: "bench", SystemDBPool: pool, Logger: slog.New(slog.DiscardHandler),
		ApplicationVersion: "v1", ExecutorID: "worker-1"})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(c, w.read, dbos.WithWorkflowName("read"))
	if err := dbos.Launch(c); err != nil {
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
				if err := dbosOne(c, w, d); err != nil {
					failed <- err
					return
				}
			}
			failed <- errors.New("the queue's channel is closed")
		}()
	}
	return <-failed
}

func dbosOne(c dbos.Context, w *worker, d amqp.Delivery) error {
	var m doc
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return err
	}
	key := m.JobKey().String()
	h, err := dbos.RunWorkflow(c, w.read, key, dbos.WithWorkflowID(key))
	if err != nil {
		return err
	}
	if _, err := h.GetResult(dbos.WithHandlePollingInterval(20 * time.Millisecond)); err != nil {
		return err
	}
	return acknowledge(w, d, key)
}
