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
	name     string // of the worker that puts
	worker   ledger.WorkerID
	log      *slog.Logger
	again    []ledger.Avoided // what was submitted before and is done, not counted yet
}

// intakeLease is how long a job stays with a submission that died between claim and
// release.
const intakeLease = 30 * time.Second

func (c *call) openIntake(cfg *config.Config, log *slog.Logger) (*queue, error) {
	if err := c.embedded(cfg); err != nil {
		return nil, err
	}
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return nil, err
	}
	in := newIntake(store, registry(cfg), log)
	if err := in.join(c.ctx); err != nil {
		done()
		return nil, fmt.Errorf("joining ledger %s to submit: %w", cfg.Ledger.URL, err)
	}
	return &queue{Publisher: in, close: func(ctx context.Context) error {
		defer done()
		return store.Leave(ctx, in.worker)
	}}, nil
}

func newIntake(store ledger.Store, handlers *job.Registry, log *slog.Logger) *intake {
	return &intake{store: store, handlers: handlers, log: log, name: "submit-" + ledger.NewID().String()}
}

// join begins an epoch, as whom jobs are put.
func (i *intake) join(ctx context.Context) (err error) {
	host, _ := os.Hostname() // for people
	i.worker, err = i.store.Join(ctx, ledger.Worker{ID: i.name, TTL: intakeLease, Host: host, PID: os.Getpid(), Version: version()})
	return err
}

// errRefused: a message asks for nothing that could be put.
var errRefused = errors.New("the message is refused")

// Publish implements broker.Publisher.
func (i *intake) Publish(ctx context.Context, ms ...broker.Message) error {
	if _, err := i.store.Renew(ctx, i.worker, intakeLease); err != nil {
		return err
	}
	defer i.count(ctx)
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
		return fmt.Errorf("%w: there is no job %q", errRefused, m.Attributes["job"])
	}
	in, err := h.Decode(m.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	c, err := i.store.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: h.Name(), InputHash: in.Hash, Input: in.Body, Carrier: ledger.CarriedByLedger,
		Worker: i.worker, Token: ledger.NewID(), MaxRun: intakeLease, VerdictOnly: true})
	switch {
	case err != nil:
		return err
	case c.Verdict == ledger.Mismatch:
		return fmt.Errorf("%w: key %s is there with another input (%s, this is %s)", errRefused, in.Key, c.Stored.InputHash, in.Hash)
	case c.Verdict == ledger.Saved, c.Verdict == ledger.Purged:
		i.avoided(in.Key.Ledger().Tenant, h.Name(), c.Cost)
		return nil
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

// avoided notes that a job was submitted again that is done.
func (i *intake) avoided(tenant, action string, cost *ledger.Nano) {
	a := ledger.Avoided{Day: time.Now(), Tenant: tenant, Action: action, Cause: ledger.SubmittedAgain, Count: 1, Unpriced: 1}
	if cost != nil {
		a.Saved, a.Unpriced = *cost, 0
	}
	i.again = append(i.again, a)
}

// count writes down what a batch had again. Reports lack it when that goes wrong, and nothing else does.
func (i *intake) count(ctx context.Context) {
	if len(i.again) == 0 {
		return
	}
	if err := i.store.Count(ctx, i.worker, ledger.NewID(), i.again); err != nil {
		i.log.WarnContext(ctx, "jobs submitted again were not counted", "jobs", len(i.again), "error", err)
	}
	i.again = nil
}

// embedded publishes for a worker whose broker lives in its process: what was asked for with a result must outlive that. Jobs are put into
// the ledger, and what is none goes to the queue, which sets it aside with its reason.
type embedded struct {
	*intake
	queue broker.Publisher
}

// Publish implements broker.Publisher. Between two calls nobody has joined, since nobody would renew its lease.
func (e embedded) Publish(ctx context.Context, ms ...broker.Message) (err error) {
	if err := e.join(ctx); err != nil {
		return err
	}
	defer func() {
		if lerr := e.store.Leave(context.WithoutCancel(ctx), e.worker); lerr != nil {
			e.log.WarnContext(ctx, "epoch of the outbox not closed; it lapses", "error", lerr)
		}
	}()
	for _, m := range ms {
		err := e.intake.Publish(ctx, m)
		if errors.Is(err, errRefused) {
			err = e.queue.Publish(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
