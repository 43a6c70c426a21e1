package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// throughLedger reports whether jobs are submitted to the ledger: the broker lives inside
// each worker's process, and the ledger does not.
func (c *call) throughLedger(cfg *config.Config) bool {
	return cfg.Broker.URL.Scheme() == "memory" && c.Queue == nil && cfg.Ledger.URL.Scheme() != "memory"
}

// reachable refuses to submit where no worker would see it.
func (c *call) reachable(cfg *config.Config) error {
	if c.throughLedger(cfg) {
		return cfg.LedgerFault()
	}
	return c.sharedBroker(cfg)
}

// intake publishes into the ledger instead of a queue: the job is claimed with its input,
// carried by the ledger and given back at once. It is ready then, and every worker on the
// ledger finds it as it finds whatever the ledger carries, after a restart too.
type intake struct {
	store    ledger.Store
	handlers *job.Registry
	worker   ledger.WorkerID
}

// intakeLease is how long a job stays with a submission that died between claim and
// release.
const intakeLease = 30 * time.Second

func (c *call) openIntake(cfg *config.Config, _ *slog.Logger) (*queue, error) {
	if err := c.embedded(cfg); err != nil {
		return nil, err
	}
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people
	id, err := store.Join(c.ctx, ledger.Worker{ID: "submit-" + ledger.NewID().String(), TTL: intakeLease, Host: host, PID: os.Getpid(), Version: version()})
	if err != nil {
		done()
		return nil, fmt.Errorf("joining ledger %s to submit: %w", cfg.Ledger.URL, err)
	}
	in := &intake{store: store, handlers: registry(cfg), worker: id}
	return &queue{Publisher: in, close: func(ctx context.Context) error {
		defer done()
		return store.Leave(ctx, id)
	}}, nil
}

// Publish implements broker.Publisher.
func (i *intake) Publish(ctx context.Context, ms ...broker.Message) error {
	if _, err := i.store.Renew(ctx, i.worker, intakeLease); err != nil {
		return err
	}
	for _, m := range ms {
		if err := i.put(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (i *intake) put(ctx context.Context, m broker.Message) error {
	h, ok := i.handlers.Lookup(m.Attributes["job"])
	if !ok {
		return fmt.Errorf("there is no job %q", m.Attributes["job"])
	}
	in, err := h.Decode(m.Body)
	if err != nil {
		return err
	}
	c, err := i.store.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: h.Name(), InputHash: in.Hash, Input: in.Body, Carrier: ledger.CarriedByLedger,
		Worker: i.worker, Token: ledger.NewID(), MaxRun: intakeLease})
	switch {
	case err != nil:
		return err
	case c.Verdict == ledger.Mismatch:
		return fmt.Errorf("key %s is there with another input (%s, this is %s)", in.Key, c.Stored.InputHash, in.Hash)
	case c.Verdict != ledger.Run: // it was submitted before
		return nil
	}
	r, err := i.store.Release(ctx, c.Lease, ledger.Outcome{GiveBack: true, Who: i.worker.ID,
		Error: ledger.JobError{Class: "submitted", Text: "it waits for a worker"}})
	if err == nil && r.Carrier != ledger.CarriedByLedger {
		err = errors.New("the ledger did not keep the input")
	}
	return err
}
