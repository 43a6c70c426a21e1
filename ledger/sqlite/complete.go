package sqlite

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/paidonce/paidonce/ledger"
)

// Complete implements ledger.Ledger.
func (l *Ledger) Complete(ctx context.Context, lease ledger.Lease, res ledger.Result) error {
	if err := cmp.Or(res.Check(), res.CheckSteps(lease.Key), res.CheckMessages()); err != nil {
		return err
	}
	hooks := make([]hook, len(res.Hooks))
	for i, h := range res.Hooks {
		var err error
		if hooks[i], err = own(h); err != nil {
			return err
		}
	}
	body, err := l.split(ctx, lease.Key.Tenant, lease.Job, res.Body, ledger.InlineBody)
	if err != nil {
		return err
	}
	res.Body = body
	_, err = submit(ctx, l, "complete "+lease.Key.Text, len(hooks) > 0, func(t *tx) (struct{}, error) {
		return struct{}{}, t.complete(ctx, lease, res, hooks)
	})
	return repanic(err)
}

// complete commits a result (J10). The user's work comes between the guards and the
// writes; the lock is held all the time.
func (t *tx) complete(ctx context.Context, lease ledger.Lease, res ledger.Result, hooks []hook) error {
	r, err := t.facts(lease.Key.Tenant, lease.Job)
	if err != nil {
		return err
	}
	f := r.leaseFacts(lease, t.now)
	if f.FenceHeld && r.State == ledger.Done && r.resultID == res.ID {
		return nil // its own effect, before a reply that was lost
	}
	rule := ledger.Row("J10")
	if err := ledger.Refusal(rule.Allows(f)); err != nil {
		return err
	}
	for _, h := range hooks {
		if err := t.run(ctx, h); err != nil {
			return err
		}
	}
	t.now = clock()
	r.move(rule, t.now, r.Owner.ID, "")
	if _, err := t.exec("result", r.Key.Tenant, r.ID, r.Generation, res.ID[:], res.Schema, res.Body); err != nil {
		return err
	}
	if r.attempts > 0 {
		used, err := idList(res.Used)
		if err != nil {
			return err
		}
		if _, err := t.exec("surplus", r.Key.Tenant, r.ID, r.Generation, used); err != nil {
			return err
		}
	}
	if _, err := t.exec("complete", res.ID[:], micros(t.now), r.Key.Tenant, r.ID); err != nil {
		return err
	}
	if err := t.tell(r); err != nil {
		return err
	}
	for i, s := range res.Steps {
		if err := t.follow(r, lease.Key, i+1, s); err != nil {
			return err
		}
	}
	return t.put(r, res)
}

// idList is the ids as surplus.sql takes them.
func idList(ids []ledger.ID) (string, error) {
	texts := make([]string, len(ids))
	for i, v := range ids {
		texts[i] = hex.EncodeToString(v[:])
	}
	b, err := json.Marshal(texts)
	return string(b), err
}
