package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// River is a queue in Postgres, so it needs no broker. Its fetches are tuned: as it comes, it
// waits 100 ms between two of them.
var (
	riverAsync = system{
		about:   "river: tuned fetches, RecordOutput, completion stored in batches after the handler has returned; no broker",
		unique:  true,
		prepare: prepareRiver,
		work:    func(ctx context.Context, w *worker) error { return runRiver(ctx, w, false) },
		results: `select count(*) from river_job where state = 'completed' and octet_length(metadata->>'output') >= $1`,
	}
	riverTx = system{
		about:   "rivertx: tuned fetches, the result and JobCompleteTx in one transaction; no broker",
		unique:  true,
		prepare: prepareRiver,
		work:    func(ctx context.Context, w *worker) error { return runRiver(ctx, w, true) },
		results: `select count(*) from river_result r join river_job j on j.args->>'key' = r.key
			where j.state = 'completed' and octet_length(r.result) >= $1`,
	}
)

// riverArgs is the message.
type riverArgs struct {
	Key  string `json:"key" river:"unique"`
	Sent int64  `json:"sent"` // Unix nanoseconds
	Text string `json:"text"`
}

// Kind names the job.
func (riverArgs) Kind() string { return action }

// InsertOpts makes the key unique.
func (riverArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

func prepareRiver(ctx context.Context, p plan) (publisher, error) {
	pool, err := pgxpool.New(ctx, p.Postgres)
	if err != nil {
		return nil, err
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "create table river_result (key text primary key, result bytea not null)"); err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return &riverPublisher{pool, c}, err
}

type riverPublisher struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// publish inserts in batches. A key twice in one batch is an error of River's.
func (r *riverPublisher) publish(ctx context.Context, ms []doc) error {
	for part := range slices.Chunk(ms, 500) {
		var all []river.InsertManyParams
		seen := map[string]bool{}
		for _, m := range part {
			key := m.JobKey().String()
			if !seen[key] {
				all = append(all, river.InsertManyParams{Args: riverArgs{key, time.Now().UnixNano(), m.Text}})
			}
			seen[key] = true
		}
		if _, err := r.client.InsertMany(ctx, all); err != nil {
			return err
		}
	}
	return nil
}

func (r *riverPublisher) close() { r.pool.Close() }

// riverWorker is the handler.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	w    *worker
	pool *pgxpool.Pool
	tx   bool
}

// Timeout is longer than any turn.
func (*riverWorker) Timeout(*river.Job[riverArgs]) time.Duration { return 2 * time.Hour }

// Work makes the call and stores its answer.
func (r *riverWorker) Work(ctx context.Context, j *river.Job[riverArgs]) error {
	answer := r.w.handle(j.Args.Key)
	if !r.tx {
		return river.RecordOutput(ctx, answer)
	}
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into river_result (key, result) values ($1, $2)", j.Args.Key, []byte(answer)); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
		return err
	})
	if err == nil {
		r.w.settled(j.Args.Key, j.Args.Sent)
	}
	return err
}

func runRiver(ctx context.Context, w *worker, tx bool) error {
	pool, err := w.pool(ctx)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{w: w, pool: pool, tx: tx})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: w.Handlers}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		JobTimeout: 2 * time.Hour, RescueStuckJobsAfter: 3 * time.Hour,
	})
	if err != nil {
		return err
	}
	if !tx {
		stored, _ := c.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 100_000})
		go w.followRiver(stored)
	}
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("start River: %w", err)
	}
	w.ready()
	return nil
}

// followRiver counts the completions that are stored.
func (w *worker) followRiver(stored <-chan *river.Event) {
	for e := range stored {
		w.settled(riverKey(e.Job))
	}
}

func riverKey(j *rivertype.JobRow) (key string, sent int64) {
	var a riverArgs
	if err := json.Unmarshal(j.EncodedArgs, &a); err != nil {
		panic(err) // we wrote it
	}
	return a.Key, a.Sent
}
