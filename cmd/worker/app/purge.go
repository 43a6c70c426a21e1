package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

const (
	// purgeEvery is how often a worker purges, give or take a tenth.
	purgeEvery = time.Hour
	// progressEvery is how often a person is told how far a purge is.
	progressEvery = 5 * time.Second
)

// purgeFirst is how long after its start a worker purges first, give or take half: not all
// at once after a deploy. A variable for the test that waits for it.
var purgeFirst = 5 * time.Minute

// purged adds up the steps of a purge.
type purged struct {
	Rows       int      `json:"rows"`       // results, answers, inputs, attempts, history and counts; of dropped partitions about
	Keys       int      `json:"keys"`       // jobs that were forgotten whole
	Moved      int      `json:"moved"`      // jobs that are still needed and had to move
	Partitions []string `json:"partitions"` // that were dropped
	InUse      []string `json:"in_use"`     // what others held for too long; it is left to the next purge
}

func (p *purged) add(s ledger.PurgeStep) {
	p.Rows, p.Keys, p.Moved = p.Rows+s.Rows, p.Keys+s.Keys, p.Moved+s.Moved
	switch {
	case s.InUse && s.Partition == "":
		p.InUse = append(p.InUse, "rows")
	case s.InUse:
		p.InUse = append(p.InUse, s.Partition)
	case s.Partition != "":
		p.Partitions = append(p.Partitions, s.Partition)
	}
}

func (p *purged) String() string {
	return fmt.Sprintf("%d keys forgotten, %d rows deleted, %d partitions dropped, %d jobs moved out of their way", p.Keys, p.Rows, len(p.Partitions), p.Moved)
}

// brisk is how long a purge rests that a person waits for: whoever runs jobs has half of the
// ledger's time, and is held up by one drop after the other.
func brisk(_ ledger.PurgeStep, took time.Duration) time.Duration { return min(took, time.Second) }

// purge purges the ledger, tells of every step, and rests after it.
func purge(ctx context.Context, store ledger.Purger, cfg *config.Config, rest func(ledger.PurgeStep, time.Duration) time.Duration,
	tell func(ledger.PurgeStep)) error {
	begun := time.Now()
	for s, err := range store.Purge(ctx, ledger.Retention{Result: cfg.Retention.Result.Std(), Key: cfg.Retention.Key.Std()}) {
		if err != nil {
			return err
		}
		tell(s)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rest(s, time.Since(begun))):
		}
		begun = time.Now()
	}
	return nil
}

type purgeDocument struct {
	Retention struct {
		Result string `json:"result"`
		Key    string `json:"key"`
	} `json:"retention"`
	purged
}

// Run purges what is past its retention now, to the end.
func (p purgeCommand) Run(c *call) error {
	cfg, err := c.load(c.shared)
	if err != nil {
		return err
	}
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return err
	}
	defer done()
	ctx, stop := signal.NotifyContext(c.ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := store.Ping(ctx); err != nil {
		return fmt.Errorf("the ledger %s is not usable: %w", cfg.Ledger.URL, err)
	}
	return p.purge(ctx, c, cfg, store)
}

// purge purges the store, tells of it on stderr and shows what was done.
func (p purgeCommand) purge(ctx context.Context, c *call, cfg *config.Config, store ledger.Purger) error {
	doc := purgeDocument{purged: purged{Partitions: []string{}, InUse: []string{}}}
	doc.Retention.Result, doc.Retention.Key = cfg.Retention.Result.String(), cfg.Retention.Key.String()
	told := time.Now()
	err := purge(ctx, store, cfg, brisk, func(s ledger.PurgeStep) {
		doc.add(s)
		if s.Partition != "" || time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintln(c.Stderr, progress(s, doc.purged))
		}
	})
	if err != nil {
		err = fmt.Errorf("PO517 the purge broke off; what it did before stays done: %w", err)
	} else if len(doc.InUse) > 0 {
		err = fmt.Errorf("PO518 others held %s for too long, so a part is left; purge again later", strings.Join(doc.InUse, ", "))
	}
	return errors.Join(err, show(c, p.asJSON, doc, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, doc.purged.String())
		return err
	}))
}

// progress is what a person is told of a purge on its way.
func progress(s ledger.PurgeStep, all purged) string {
	switch {
	case s.InUse:
		return "in use, left to the next purge: " + s.Partition
	case s.Partition != "":
		return fmt.Sprintf("dropped %s with about %d rows", s.Partition, s.Rows)
	}
	return "so far: " + all.String()
}

// purges purges the ledger every hour until ctx ends. All workers of a ledger do; their steps
// take turns, and who comes second finds nothing.
func (w *worker) purges(ctx context.Context) {
	wait := purgeFirst/2 + rand.N(purgeFirst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = purgeEvery - purgeEvery/10 + rand.N(purgeEvery/5)
		var all purged
		err := purge(ctx, w.store, w.cfg, ledger.PurgeStep.Rest, all.add)
		if ctx.Err() != nil {
			return
		}
		if all.Keys+all.Rows+len(all.Partitions) > 0 {
			w.log.Info("purged", "keys", all.Keys, "rows", all.Rows, "moved", all.Moved, "partitions", all.Partitions)
		}
		switch {
		case err != nil:
			w.log.Warn("PO517 the purge broke off; it is tried again", "error", err, "in", wait.Round(time.Second))
		case len(all.InUse) > 0:
			w.log.Warn("PO518 others held what is past its retention for too long; it is tried again", "in_use", all.InUse, "in", wait.Round(time.Second))
		}
	}
}
