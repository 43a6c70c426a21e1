package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// TestBatches takes many jobs through each verb at once: a verb of all of them is one
// transaction, or two, and every job has its own.
func TestBatches(t *testing.T) { ways(t, 1, batches) }

func batches(f *fixture) {
	const many = 40
	l, t := lane{f}, f.T
	var lives []*life
	for i := range many {
		lives = append(lives, l.newLife(fmt.Sprint(i)))
	}
	together := func(s stage, lives []*life) {
		var before int64
		for i, err := range l.crowd(func() { before = l.transactions() }, verbs(s, lives)...) {
			if err != nil {
				t.Errorf("%s %d: %v", s.name, i, err)
			}
		}
		if n := l.transactions() - before; n > 4 { // the held one, and what the server does for itself
			t.Errorf("%s: %d transactions for %d", s.name, n, len(lives))
		}
	}
	for _, s := range stages {
		together(s, lives)
	}
	var back []*life
	for i := range many {
		x := l.newLife(fmt.Sprint("back ", i))
		x.lease = l.run(x.req)
		back = append(back, x)
	}
	together(release, back)
	for i, x := range lives {
		l.want(x.req.Key, "done runs 1 fence 1 open 0 attempts 1 reserved 0 events 4 result true marks 0")
		l.want(back[i].req.Key, "ready runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result false marks 0")
		j, err := l.Job(t.Context(), x.req.Key)
		if err != nil || j.Result.ID != x.result || j.Attempts[0].ID != x.attempt.ID || j.Attempts[0].Surplus || j.Origin != x.req.Origin {
			t.Errorf("%s: %+v %v", x.req.Key, j, err)
		}
		if j, err = l.Job(t.Context(), back[i].req.Key); err != nil || j.Error.Text != back[i].req.Key.Text {
			t.Errorf("%s: %+v %v", back[i].req.Key, j.Error, err)
		}
	}
}

// TestDuplicatesInABatch: whoever wants the result has it, beside one that does not.
func TestDuplicatesInABatch(t *testing.T) {
	l := newLane(t)
	if err := l.life(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	got := make([]ledger.Claimed, 3)
	var duplicates []func() error
	for i := range got {
		r := l.request("a")
		r.VerdictOnly = i != 1
		duplicates = append(duplicates, func() (err error) {
			got[i], err = l.Claim(t.Context(), r)
			return err
		})
	}
	if err := errors.Join(l.crowd(nil, duplicates...)...); err != nil {
		t.Error(err)
	}
	for i, c := range got {
		if c.Verdict != ledger.Saved || (c.Result != nil) != (i == 1) || i == 1 && string(c.Result.Body) != "{}" {
			t.Errorf("duplicate %d: %+v", i, c)
		}
	}
}

// TestPoisonedRow: what the server refuses of one fails alone, whatever the verb.
func TestPoisonedRow(t *testing.T) {
	l := newLane(t)
	run(t, l.db, `create function poison() returns trigger language plpgsql as $$
		begin
			if exists (select from paidonce.job where id = new.job and key like '%:' || tg_argv[0]) then
				raise exception 'poisoned';
			end if;
			return new;
		end $$`)
	run(t, l.db, "create function poison_job() returns trigger language plpgsql as $$ begin raise exception 'poisoned'; end $$")
	run(t, l.db, `create trigger poison before insert on paidonce.job for each row
		when (new.key like '%:claim') execute function poison_job()`)
	for name, table := range map[string]string{"send": "attempt", "settle": "response", "complete": "result"} {
		run(t, l.db, fmt.Sprintf("create trigger poison before insert on paidonce.%s for each row execute function poison('%s')", table, name))
	}
	run(t, l.db, `create trigger poison before insert on paidonce.event for each row when (new.to_state = 'ready') execute function poison('release')`)

	for _, s := range append(slices.Clone(stages[:5]), release) {
		if s.name == "look" {
			continue // it writes nothing
		}
		var lives []*life
		for i := range 5 {
			x := l.newLife(fmt.Sprint(s.name, " ", i))
			if i == 3 {
				x = l.newLife(s.name)
			}
			for _, before := range stages[:max(0, slices.IndexFunc(stages, func(o stage) bool { return o.name == s.name }))] {
				if err := before.do(x); err != nil {
					t.Fatalf("%s: %v", before.name, err)
				}
			}
			if s.name == "release" {
				x.lease = l.run(x.req)
			}
			lives = append(lives, x)
		}
		before, _ := l.Job(t.Context(), lives[3].req.Key)
		for i, err := range l.crowd(nil, verbs(s, lives)...) {
			if i == 3 && (err == nil || !strings.Contains(err.Error(), "poisoned")) || i != 3 && err != nil {
				t.Errorf("%s %d: %v", s.name, i, err)
			}
		}
		if after, _ := l.Job(t.Context(), lives[3].req.Key); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the row was\n%+v\nand is\n%+v", s.name, before, after)
		}
	}
}

// TestManyCallsOfOneJob: gates and settlements of one job are never in one statement, which
// would count them once.
func TestManyCallsOfOneJob(t *testing.T) {
	const many = 12
	l := newLane(t)
	r := l.request("one")
	lease := l.run(r)
	attempts := make([]ledger.Attempt, many)
	var gates, settlements []func() error
	for i := range attempts {
		a := attempt()
		a.Call.InputKey = fmt.Sprint(i)
		attempts[i] = a
		gates = append(gates, func() error { return l.Send(t.Context(), lease, a) })
		settlements = append(settlements, func() error {
			_, err := l.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}, answer())
			return err
		})
	}
	if err := errors.Join(l.crowd(nil, gates...)...); err != nil {
		t.Errorf("gates: %v", err)
	}
	l.want(r.Key, fmt.Sprintf("running runs 1 fence 1 open %d attempts %[1]d reserved %d events %d result false marks 0", many, many*5, many+1))
	if err := errors.Join(l.crowd(nil, settlements...)...); err != nil {
		t.Errorf("settlements: %v", err)
	}
	l.want(r.Key, fmt.Sprintf("running runs 1 fence 1 open 0 attempts %d reserved 0 events %d result false marks 0", many, 2*many+1))
	if j, err := l.Job(t.Context(), r.Key); err != nil || *j.Cost != 3*many {
		t.Errorf("cost %v %v", j.Cost, err)
	}
}

// TestClaimsOfOneKeyInABatch: one of them runs.
func TestClaimsOfOneKeyInABatch(t *testing.T) {
	l := newLane(t)
	r := l.request("one")
	verdicts := make([]ledger.Verdict, 9)
	var claims []func() error
	for i := range verdicts {
		r := r
		r.Token = ledger.NewID()
		claims = append(claims, func() error {
			c, err := l.Claim(t.Context(), r)
			verdicts[i] = c.Verdict
			return err
		})
	}
	if err := errors.Join(l.crowd(nil, claims...)...); err != nil {
		t.Errorf("claims: %v", err)
	}
	runs := 0
	for _, v := range verdicts {
		if v == ledger.Run {
			runs++
		} else if v != ledger.Busy {
			t.Errorf("told %s", v)
		}
	}
	if runs != 1 {
		t.Errorf("%d run", runs)
	}
	l.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
}

// TestOneTokenForManyKeys: each keeps its own input.
func TestOneTokenForManyKeys(t *testing.T) {
	l := newLane(t)
	token := ledger.NewID()
	var lives []*life
	for i := range 12 {
		x := l.newLife(fmt.Sprint(i))
		x.req.Token, x.req.Input = token, fmt.Append(nil, i)
		lives = append(lives, x)
	}
	if err := errors.Join(l.crowd(nil, verbs(stages[0], lives)...)...); err != nil {
		t.Errorf("claims: %v", err)
	}
	for _, x := range lives {
		got := scan[[]byte](t, l.db, `select i.body from paidonce.input i join paidonce.job j on j.tenant = i.tenant and j.id = i.job where j.key = $1`, x.req.Key.Text)
		if !bytes.Equal(got, x.req.Input) {
			t.Errorf("%s keeps the input %s, want %s", x.req.Key, got, x.req.Input)
		}
	}
}

// TestTwoEndsOfARun: the first one decides, and the other is told so.
func TestTwoEndsOfARun(t *testing.T) {
	l := newLane(t)
	x := l.newLife("one")
	x.lease = l.run(x.req)
	states := make([]ledger.State, 2)
	end := func(i int, o ledger.Outcome) func() error {
		return func() error {
			r, err := l.Release(t.Context(), x.lease, o)
			states[i] = r.State
			return err
		}
	}
	errs := l.crowd(nil, end(0, ledger.Outcome{Error: ledger.JobError{Class: "retry"}}), end(1, ledger.Outcome{Fail: true, Error: ledger.JobError{Class: "permanent"}}))
	if err := errors.Join(errs...); err != nil || states[0] != ledger.Ready || states[1] != ledger.Ready {
		t.Errorf("told %q %v, want ready twice", states, err)
	}
	l.want(x.req.Key, "ready runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result false marks 0")
}

// TestTwoCommitsOfARun: one of them is told that it is lost.
func TestTwoCommitsOfARun(t *testing.T) {
	l := newLane(t)
	x := l.newLife("one")
	x.lease = l.run(x.req)
	complete := func() error {
		return l.Complete(t.Context(), x.lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1")})
	}
	if errs := l.crowd(nil, complete, complete); errs[0] != nil || !errors.Is(errs[1], ledger.ErrLost) {
		t.Errorf("told %v", errs)
	}
	l.want(x.req.Key, "done runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result true marks 0")
}

// TestOneLeavesABatch: who is cancelled while he waits writes nothing, and the others are served.
func TestOneLeavesABatch(t *testing.T) {
	l := newLane(t)
	var verbs []func() error
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	for i := range 5 {
		x := l.newLife(fmt.Sprint(i))
		if i == 2 {
			x.ctx = ctx
		}
		verbs = append(verbs, func() error { return stages[0].do(x) })
	}
	errs := l.crowd(func() {
		cancel(gone)
		waitForAsks(t, 5) // one of six has left
	}, verbs...)
	for i, err := range errs {
		if i == 2 && !errors.Is(err, gone) || i != 2 && err != nil {
			t.Errorf("claim %d: %v", i, err)
		}
	}
	if n := scan[int](t, l.db, "select count(*) from paidonce.job"); n != 5 { // the held one among them
		t.Errorf("%d jobs", n)
	}
}

// TestLockedRowInABatch: a row that somebody holds locked keeps nobody else waiting for long, and
// is had in the end.
func TestLockedRowInABatch(t *testing.T) { ways(t, 2, lockedRow) }

func lockedRow(f *fixture) {
	t := f.T
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var lives []*life
	for i := range 7 {
		x := f.newLife(fmt.Sprint(i))
		x.lease, x.ctx = f.run(x.req), ctx
		lives = append(lives, x)
	}
	held, lives := lives[5:], lives[:5]
	var wg sync.WaitGroup
	var holds []pgx.Tx
	for i := range 2 { // both lanes
		holds = append(holds, f.lock(held[i].req.Key))
		wg.Go(func() {
			if err := stages[2].do(held[i]); err != nil {
				t.Errorf("the gate of a locked job: %v", err)
			}
		})
		waitForAsks(t, i+1)
	}
	time.Sleep(time.Second) // those are alone, and wait for longer than a batch does
	locked := f.lock(lives[2].req.Key)
	var others sync.WaitGroup
	for i, x := range lives {
		group := &others
		if i == 2 {
			group = &wg
		}
		group.Go(func() {
			if err := release.do(x); err != nil {
				t.Errorf("release %d: %v", i, err)
			}
		})
		waitForAsks(t, i+3)
	}
	unlock := func(tx pgx.Tx) {
		if err := tx.Rollback(ctx); err != nil {
			t.Errorf("unlock: %v", err)
		}
	}
	unlock(holds[0]) // one lane takes all five
	waitForLocks(t, f.db, 2)
	unlock(holds[1])
	others.Wait()
	unlock(locked)
	wg.Wait()
	for _, x := range lives {
		f.want(x.req.Key, "ready runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result false marks 0")
	}
}

// TestLostReplyToABatch: nobody of a batch is told more than is known, and repeating tells.
func TestLostReplyToABatch(t *testing.T) {
	l := newLane(t)
	var lives []*life
	for i := range 6 {
		x := l.newLife(fmt.Sprint(i))
		x.lease = l.run(x.req)
		lives = append(lives, x)
	}
	var lost <-chan struct{}
	drop := func(id ledger.ID) func() { return func() { lost = l.proxy.DropReplyTo(id[:]) } }

	for i, err := range l.crowd(drop(lives[3].attempt.ID), verbs(stages[2], lives)...) {
		if err == nil || errors.Is(err, ledger.ErrRepeated) || errors.Is(err, ledger.ErrLost) {
			t.Errorf("gate %d without a reply: %v", i, err)
		}
	}
	<-lost
	for i, x := range lives {
		if err := stages[2].do(x); !errors.Is(err, ledger.ErrRepeated) {
			t.Errorf("gate %d again: %v", i, err)
		}
		l.want(x.req.Key, "running runs 1 fence 1 open 1 attempts 1 reserved 5 events 2 result false marks 0")
	}
	for i, err := range l.crowd(drop(lives[0].attempt.ID), verbs(stages[3], lives)...) {
		if err == nil {
			t.Errorf("settlement %d: the reply came", i)
		}
	}
	<-lost
	if err := errors.Join(l.crowd(nil, verbs(stages[3], lives)...)...); err != nil {
		t.Errorf("settlements again: %v", err)
	}
	// A commit finds out by itself.
	if err := errors.Join(l.crowd(drop(lives[5].result), verbs(stages[4], lives)...)...); err != nil {
		t.Errorf("commits: %v", err)
	}
	<-lost
	for _, x := range lives {
		l.want(x.req.Key, "done runs 1 fence 1 open 0 attempts 1 reserved 0 events 4 result true marks 0")
	}
}
