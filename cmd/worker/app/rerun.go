package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

// Run makes a new generation of an ended job.
func (r rerunCommand) Run(c *call) error {
	switch {
	case strings.TrimSpace(r.Reason) == "":
		return usagef("PO502 --reason is empty; whoever reads the history wants to know why")
	case strings.TrimSpace(r.Token) == "":
		return usagef("PO502 --token is empty; choose a text of your own for this order, so that giving it twice does it once")
	}
	return c.withLedger(func(ctx context.Context, _ *config.Config, store ledger.Store) error {
		j, err := find(ctx, store, r.Key)
		if err != nil {
			return err
		}
		order := ledger.Reopening{Key: j.Key, Token: r.Token, Reason: r.Reason, Who: c.person()}
		done, err := store.Reopen(ctx, order)
		if errors.Is(err, ledger.ErrState) && j.State == ledger.Unknown && r.AcceptDoublePay {
			if !j.InputKept { // or it would be given up for nothing
				return notReopened(r.Key, j, ledger.ErrNoInput)
			}
			if err := (resolveCommand{Key: r.Key, Reason: "to run it again: " + r.Reason}).giveUp(ctx, c, store, j); err != nil {
				return err
			}
			done, err = store.Reopen(ctx, order)
		}
		if err != nil {
			return notReopened(r.Key, j, err)
		}
		if done.Again {
			fmt.Fprintf(c.Stdout, "This token had the job run again before, and nothing happened now. The job is %s, in generation %d.\n", done.State, done.Generation)
			return nil
		}
		fmt.Fprintf(c.Stdout, "The job is ready, as generation %d: the next worker makes all of its calls, and they are paid again (so far it cost %s).\n",
			done.Generation, dollarsOr(j.Cost, "an unknown sum"))
		if j.Result != nil {
			fmt.Fprintln(c.Stdout, "The earlier result is kept.")
		}
		return nil
	})
}

// notReopened says why a job is not run again, and what to do.
func notReopened(key string, j ledger.Job, err error) error {
	switch {
	case errors.Is(err, ledger.ErrState) && j.State == ledger.Unknown:
		return fmt.Errorf("PO503 job %s is unknown: %d calls may have been paid. Decide about them first (worker jobs resolve), or say --accept-double-pay", key, j.OpenCalls)
	case errors.Is(err, ledger.ErrState) && j.State == ledger.Running:
		return fmt.Errorf("PO503 job %s is running; wait for its end, or cancel it first (worker jobs cancel)", key)
	case errors.Is(err, ledger.ErrState):
		return fmt.Errorf("PO503 job %s: %w", key, err)
	case errors.Is(err, ledger.ErrDoublePay):
		return fmt.Errorf("PO503 job %s is not retried without --accept-double-pay: %w", key, err)
	case errors.Is(err, ledger.ErrNoInput):
		return fmt.Errorf("PO503 job %s cannot run again, since nobody has its input any more; submit it again: %w", key, err)
	}
	return fmt.Errorf("running job %s again: %w", key, err)
}

// Run puts failed jobs back.
func (r retryCommand) Run(c *call) error {
	filtered := r.Waiting || r.Job != "" || r.Tenant != "" || r.Class != "" || r.All
	most := 100
	switch {
	case r.Limit != nil:
		most = *r.Limit
	case r.Waiting: // whoever raised a limit means all
		most = math.MaxInt
	}
	switch {
	case !r.DryRun && strings.TrimSpace(r.Reason) == "":
		return usagef("PO502 --reason is empty; whoever reads the history wants to know why (or take --dry-run)")
	case len(r.Keys) > 0 == filtered:
		return usagef("PO502 name keys, or say which failed jobs with --job, --tenant, --class or --all (with --over-day-budget: which jobs that wait); not both")
	case r.Waiting && r.Class != "":
		return usagef("PO502 --class is of failed jobs, and --over-day-budget of those that wait; leave one of them out")
	case most < 1:
		return usagef("PO502 --limit %d: ask for at least one job", most)
	}
	return c.withLedgerLong(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		doc := retryDocument{Waiting: r.Waiting, DryRun: r.DryRun, Jobs: []retried{}}
		doc.Summary.SavedUSD = new("0")
		err := r.each(ctx, store, func(j ledger.Job) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			one, err := r.one(ctx, c, store, j, cfg.Retention.Result.Std())
			if err == nil {
				doc.add(one)
			}
			doc.More = doc.Summary.Retried == most
			return doc.More, err
		})
		return errors.Join(err, show(c, r.asJSON, doc, func(w io.Writer) error { return printRetried(w, doc) }), doc.verdict())
	})
}

// each reads the jobs that are asked for, until do says that it is enough.
func (r retryCommand) each(ctx context.Context, store ledger.Store, do func(ledger.Job) (enough bool, err error)) error {
	keys := r.Keys
	if len(keys) == 0 {
		var err error
		if keys, err = r.meant(ctx, store); err != nil {
			return err
		}
	}
	for _, k := range keys {
		fctx, cancel := context.WithTimeout(ctx, commandTimeout)
		j, err := find(fctx, store, k)
		cancel()
		if err != nil {
			return err
		}
		if enough, err := do(j); enough || err != nil {
			return err
		}
	}
	return nil
}

// meant are the keys of the jobs that the filters name, newest first. A job that waits stays as it is until a worker has it, so
// those that are due already are left out: a limit is of the others.
func (r retryCommand) meant(ctx context.Context, store ledger.Store) (keys []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	state := ledger.Failed
	if r.Waiting {
		state = ledger.Ready
	}
	for j, err := range store.Jobs(ctx, ledger.Filter{Tenant: r.Tenant, Action: r.Job, State: state, Limit: math.MaxInt32}) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("listing %s jobs: %w", state, err)
		case r.Waiting && (!overDay(j) || !j.NextAt.After(time.Now())):
		case r.Class != "" && (j.Error == nil || j.Error.Class != r.Class):
		default:
			keys = append(keys, j.Key.Text)
		}
	}
	return keys, nil
}

// overDay reports whether the job waits because a budget of the day was used up.
func overDay(j ledger.Job) bool {
	return j.State == ledger.Ready && j.Error != nil && j.Error.Class == "day_budget"
}

// one retries a job, or says what that would do. kept is how long inputs are.
func (r retryCommand) one(ctx context.Context, c *call, store ledger.Store, j ledger.Job, kept time.Duration) (retried, error) {
	x := forecast(j)
	switch {
	case j.State != ledger.Failed && !overDay(j):
		x.Verdict = notFailed
	case overDay(j) && r.DryRun && j.InputKept:
		x.Verdict = wouldRetry
	case overDay(j):
	case x.MaybePaidTwice > 0 && !r.AcceptDoublePay:
		x.Verdict = needsLeave
	case r.DryRun && (!j.InputKept || time.Since(j.UpdatedAt) > kept):
		x.Verdict = inputGone
	case r.DryRun:
		x.Verdict = wouldRetry
	}
	if x.Verdict != "" {
		return x, nil
	}
	_, err := store.Reopen(ctx, ledger.Reopening{Key: j.Key, Waiting: overDay(j), DoublePay: r.AcceptDoublePay, Reason: r.Reason, Who: c.person()})
	switch {
	case err == nil:
		x.Verdict = isRetried
	case errors.Is(err, ledger.ErrState): // somebody else's, meanwhile
		x.Verdict = notFailed
	case errors.Is(err, ledger.ErrDoublePay):
		x.Verdict = needsLeave
	case errors.Is(err, ledger.ErrNoInput):
		x.Verdict = inputGone
	default:
		return x, notReopened(j.Key.Text, j, err)
	}
	return x, nil
}
