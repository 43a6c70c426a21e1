package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// reviewTimeout bounds a look through the dead letters; every one is asked of the ledger.
const reviewTimeout = 10 * time.Minute

// groupSize is how many of a FIFO group a review sees at most: SQS hands out ten at once,
// and no other of the group while one of these is held.
const groupSize = 10

// Run lists dead letters with what a redrive would do. It changes nothing.
func (l dlqListCommand) Run(c *call) error {
	return c.review(l.asJSON, &review{filter: l.dlqFilter})
}

// Run drops the dead letters whose job has its result, and puts back those that can run.
func (r dlqRedriveCommand) Run(c *call) error {
	if !r.DryRun && strings.TrimSpace(r.Reason) == "" {
		return usagef("PO502 --reason is empty; whoever reads the log wants to know why (or take --dry-run)")
	}
	return c.review(r.asJSON, &review{filter: r.dlqFilter, redrive: true, apply: !r.DryRun, reason: r.Reason})
}

// review is one look through the dead letters.
type review struct {
	filter  dlqFilter
	redrive bool // the command is, so what was done is said
	apply   bool // and it may change something
	reason  string

	messages consumer.Config // reads messages as a worker does
	store    ledger.Store
	doc      dlqDocument
	looked   int             // dead letters so far, hidden ones too
	kept     int             // of these, those that stay
	seen     map[string]bool // keys of jobs that will run
	err      error           // why the ledger could not be asked
}

// review opens ledger and broker, and shows what there is.
func (c *call) review(as asJSON, r *review) error {
	if r.filter.Limit < 1 {
		return usagef("PO502 --limit %d: ask for at least one dead letter", r.filter.Limit)
	}
	cfg, err := c.load(c.shared, c.sharedBroker)
	if err != nil {
		return err
	}
	log := logger(cfg, c.Stderr)
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return err
	}
	defer done()
	q, err := c.openBroker(cfg, log)
	if err != nil {
		return err
	}
	r.messages, r.store, r.seen = consumerConfig(cfg), store, map[string]bool{}
	r.doc = dlqDocument{DryRun: !r.apply, DeadLetters: []letterDocument{}}
	ctx, cancel := context.WithTimeout(c.ctx, reviewTimeout)
	defer cancel()
	err = r.all(ctx, q.DeadLetters)
	r.doc.Hidden.Groups = q.fifo && r.looked >= groupSize && r.kept > 0
	if n := r.doc.Summary; r.apply && n.Dropped+n.Redriven > 0 {
		log.Info("dead letters redriven", "who", c.person(), "reason", r.reason, "redriven", n.Redriven, "dropped", n.Dropped, "left", n.Left)
	}
	err = errors.Join(err, show(c, as, r.doc, func(w io.Writer) error { return printLetters(w, r) }))
	cctx, stop := context.WithTimeout(context.WithoutCancel(c.ctx), closeTimeout)
	defer stop()
	return errors.Join(err, q.close(cctx))
}

// all asks the ledger about every dead letter, and does with it what it may. It looks at
// one more than the limit, only to know that there is one.
func (r *review) all(ctx context.Context, q broker.DeadLetters) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err := q.Review(ctx, max(r.filter.Limit, r.filter.Limit+1), func(d broker.DeadLetter) broker.Fate {
		if r.looked == r.filter.Limit {
			r.doc.Hidden.Limit = true
			return broker.Keep
		}
		fate, err := r.decide(ctx, d)
		if err != nil {
			r.err = err
			stop()
			return broker.Keep
		}
		r.looked++
		if fate == broker.Keep {
			r.kept++
		}
		return fate
	})
	if r.err != nil {
		err = r.err // it is why the review ended
	}
	if err != nil {
		r.doc.Hidden.BrokeOff = true
		return fmt.Errorf("PO515 the review of the dead letters broke off; what it did before stays done, and nothing is lost: %w", err)
	}
	return nil
}

// decide is what becomes of one dead letter; it is shown unless a filter hides it.
func (r *review) decide(ctx context.Context, d broker.DeadLetter) (broker.Fate, error) {
	l, err := r.look(ctx, d)
	if err != nil {
		return broker.Keep, err
	}
	if !r.filter.takes(l) {
		r.doc.Hidden.Filtered++
		return broker.Keep, nil
	}
	if l.Verdict == willRun {
		if r.seen[l.Key] { // the first one's run answers it
			l.Calls, l.CostUSD = new(0), new("0")
		}
		r.seen[l.Key] = true
	}
	r.doc.add(l)
	if !r.apply {
		return broker.Keep, nil
	}
	return fates[l.Verdict], nil
}

// takes reports whether the command is about this dead letter.
func (f dlqFilter) takes(l letterDocument) bool {
	return (f.Job == "" || f.Job == l.Job) && (f.Tenant == "" || f.Tenant == l.Tenant) && strings.Contains(l.Reason, f.Match)
}

// String is the filter as flags, without the limit.
func (f dlqFilter) String() string {
	var set []string
	for _, s := range []struct{ flag, value string }{{"--job", f.Job}, {"--tenant", f.Tenant}, {"--match", f.Match}} {
		if s.value != "" {
			set = append(set, s.flag+" "+s.value)
		}
	}
	return strings.Join(set, " ")
}

// look reads the message as a worker would and asks the ledger about its job.
func (r *review) look(ctx context.Context, d broker.DeadLetter) (letterDocument, error) {
	l := letterDocument{MessageID: d.ID, Reason: d.Reason, At: instant(d.At)}
	if d.Receives > 0 {
		l.Receives = new(d.Receives)
	}
	h, in, err := r.decode(ctx, d.Message)
	l.Reason = h.ShownText(l.Reason)
	if h != nil {
		l.Job = h.Name()
	}
	if err != nil {
		l.Verdict, l.Fault = unreadable, h.ShownText(err.Error())
		return l, nil
	}
	key := in.Key.Ledger()
	l.Key, l.Tenant = key.Text, key.Tenant
	j, err := r.store.Job(ctx, key)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		l.judge(nil, h, in)
	case err != nil:
		return l, fmt.Errorf("asking the ledger about job %s: %w", key, err)
	default:
		l.judge(&j, h, in)
	}
	return l, nil
}

// decode does what the consumer does; a panic of a JobKey is a fault of its message here.
func (r *review) decode(ctx context.Context, m broker.Message) (h *job.Handler, in job.Input, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = job.Panicked(v)
		}
	}()
	return r.messages.Decode(ctx, m)
}

// The verdicts on a dead letter.
const (
	saved      = "saved"      // its job is done: a redelivery would be answered with the result
	willRun    = "redrive"    // its job can run
	isUnknown  = "unknown"    // a call of its job may have happened: decide about that first
	isRunning  = "running"    // a worker has its job just now
	hasFailed  = "failed"     // its job has failed: a redelivery would only be told so
	isOff      = "cancelled"  // a person cancelled its job: likewise
	mismatched = "mismatch"   // its key stands for a job with another input: it would come back here
	unreadable = "unreadable" // no worker of this version can read it: likewise
)

// fates are what a redrive does with each.
var fates = map[string]broker.Fate{saved: broker.Drop, willRun: broker.Redrive, isUnknown: broker.Keep, isRunning: broker.Keep,
	hasFailed: broker.Keep, isOff: broker.Keep, mismatched: broker.Keep, unreadable: broker.Keep}

// judge says what a redrive would do with a dead letter and what that would cost. j is the
// ledger's job under its key, nil if there is none.
func (l *letterDocument) judge(j *ledger.Job, h *job.Handler, in job.Input) {
	kept := map[string]bool{} // calls with an answer of this generation
	if j != nil {
		l.State = new(j.State)
		if j.Action != h.Name() || j.InputHash != in.Hash {
			l.Verdict = mismatched
			l.Fault = fmt.Sprintf("its key stands for job %s with input %s, it is job %s with input %s", j.Action, j.InputHash, h.Name(), in.Hash)
			return
		}
		for _, a := range j.Attempts {
			kept[a.Call.Name] = kept[a.Call.Name] || a.HasAnswer && a.Generation == j.Generation
		}
	}
	state := ledger.Ready
	if j != nil {
		state = j.State
	}
	if state == ledger.Running && j.OpenCalls == 0 && !j.InputKept {
		state = ledger.Ready // should its worker be dead, this message alone brings it back; a live one lets it wait
	}
	switch state {
	case ledger.Done:
		l.Verdict, l.Calls, l.CostUSD = saved, new(0), new("0")
	case ledger.Ready:
		n := 0
		for _, name := range h.Calls() {
			if !kept[name] {
				n++
			}
		}
		l.Verdict, l.Calls = willRun, &n
		if n == 0 {
			l.CostUSD = new("0")
		}
	case ledger.Unknown:
		l.Verdict = isUnknown
	case ledger.Running:
		l.Verdict = isRunning
	case ledger.Failed:
		l.Verdict = hasFailed
	case ledger.Cancelled:
		l.Verdict = isOff
	default:
		panic("app: state " + string(state))
	}
}
