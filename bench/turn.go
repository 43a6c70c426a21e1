package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// outcome is what one turn of one system took. CPU is seconds.
type outcome struct {
	report
	jobs     int // distinct keys
	messages int // that reach the worker
	postgres float64
	broker   float64
	fsyncs   float64
	wal      float64 // bytes
	conns    float64 // most to Postgres at a time
	idle     int     // KiB of memory that the worker had before the first message
	resident int     // most KiB while all calls are under way
	keeping  float64 // ms of CPU a second that Postgres needs for them
}

// turn is one system at work on one batch of messages.
type turn struct {
	room // ends with the turn
	bed  *bed
	o    options
	sys  system
	plan plan
	ms   []doc
	to   publisher
	out  outcome
}

// newTurn makes a database and a virtual host for a system. Its caller closes the room.
func newTurn(ctx context.Context, b *bed, o options, name string, ms []doc, distinct int) (t *turn, err error) {
	defer refused(&err)
	t = &turn{room: room{name: name}, bed: b, o: o, sys: systems[name], ms: ms}
	t.plan = plan{System: name, Mode: o.mode, Messages: len(ms), Distinct: distinct, Handlers: o.handlers, Conns: o.conns,
		Work: o.work, Hold: o.hold, Size: o.size, Postgres: b.postgres.URL(&t.room), AMQP: b.rabbit.VHost(&t.room), Redis: b.redis, Profile: o.profile}
	if t.sys.unique {
		t.plan.Messages = distinct
	}
	if t.to, err = t.sys.prepare(ctx, t.plan); err != nil {
		return t, fmt.Errorf("prepare %s: %w", name, err)
	}
	t.Cleanup(t.to.close)
	return t, nil
}

// run publishes, works, and returns what it took.
func (t *turn) run(ctx context.Context) (outcome, error) {
	if t.plan.Mode != modeRate {
		if err := t.to.publish(ctx, t.ms); err != nil {
			return t.out, fmt.Errorf("publish: %w", err)
		}
	}
	if err := t.settle(ctx); err != nil {
		return t.out, err
	}
	before, err := t.look(ctx)
	if err != nil {
		return t.out, err
	}
	if err := t.work(ctx); err != nil {
		return t.out, err
	}
	after, err := t.look(ctx)
	if err != nil {
		return t.out, err
	}
	t.out.jobs, t.out.messages = t.plan.Distinct, t.plan.Messages
	t.out.postgres, t.out.broker = (after.postgres - before.postgres).Seconds(), (after.broker - before.broker).Seconds()
	t.out.fsyncs, t.out.wal = float64(after.fsyncs-before.fsyncs), float64(after.wal-before.wal)
	if t.plan.Mode == modeInflight {
		return t.out, nil
	}
	return t.out, t.verify(ctx)
}

// settle lets the work of publishing end before anything is measured.
func (t *turn) settle(ctx context.Context) error {
	if err := execute(ctx, t.plan.Postgres, "vacuum analyze"); err != nil {
		return err
	}
	if _, err := t.bed.admin.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	return nil
}

// snapshot is what the servers have used since they started.
type snapshot struct {
	postgres, broker time.Duration
	fsyncs, wal      int64
}

// look reads the servers' counters. Those of a Postgres process arrive when it ends.
func (t *turn) look(ctx context.Context) (s snapshot, err error) {
	if s.postgres, err = cpu(t.bed.pids.postgres); err != nil {
		return s, err
	}
	broker := t.bed.pids.rabbit
	if t.sys.redis {
		broker = t.bed.pids.redis
	}
	if s.broker, err = cpu(broker); err != nil {
		return s, err
	}
	time.Sleep(time.Second)
	err = t.bed.admin.QueryRow(ctx, `select wal_sync, (pg_current_wal_insert_lsn() - '0/0')::bigint from pg_stat_wal`).Scan(&s.fsyncs, &s.wal)
	return s, err
}

// work runs the system in a process of its own until it has reported.
func (t *turn) work(ctx context.Context) error {
	b, err := json.Marshal(t.plan)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, childCommand, string(b))
	cmd.Stderr = os.Stderr
	says, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var meanwhile sync.WaitGroup
	over, stop := context.WithCancel(ctx)
	meanwhile.Go(func() { t.countConns(over) })
	heard := t.hear(ctx, cmd.Process.Pid, says)
	stop()
	meanwhile.Wait()
	if heard != nil {
		cmd.Process.Kill()
	}
	if err := cmd.Wait(); heard == nil {
		heard = err
	}
	return heard
}

// hear does what the worker's lines ask for, until its report.
func (t *turn) hear(ctx context.Context, pid int, says io.Reader) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	lines := bufio.NewScanner(says)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == signReady:
			if err := t.begun(ctx, pid); err != nil {
				return err
			}
		case line == signFull:
			watching.Go(func() { t.watch(pid) })
		case strings.HasPrefix(line, "{"):
			return json.Unmarshal([]byte(line), &t.out.report)
		}
	}
	return fmt.Errorf("the worker of %s ended without a report: %w", t.plan.System, ctx.Err())
}

// begun is when the worker receives.
func (t *turn) begun(ctx context.Context, pid int) (err error) {
	switch t.plan.Mode {
	case modeRate:
		return t.trickle(ctx)
	case modeInflight:
		t.out.idle, err = memory(pid, "VmRSS")
	}
	return err
}

// trickle publishes at the rate that was asked for.
func (t *turn) trickle(ctx context.Context) error {
	var sends sync.WaitGroup
	failed := make(chan error, len(t.ms))
	began := time.Now()
	for i, m := range t.ms {
		time.Sleep(time.Until(began.Add(time.Duration(float64(i) / t.o.rate * float64(time.Second)))))
		sends.Go(func() { failed <- t.to.publish(ctx, []doc{m}) })
	}
	sends.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return nil
}

// watch looks at a worker all of whose calls are under way, until it ends.
func (t *turn) watch(pid int) {
	began := time.Now()
	before, _ := cpu(t.bed.pids.postgres) // it lives: others look at it too
	for {
		kib, err := memory(pid, "VmRSS")
		if err != nil {
			return // the worker has ended
		}
		t.out.resident = max(t.out.resident, kib)
		if used, err := cpu(t.bed.pids.postgres); err == nil {
			t.out.keeping = float64((used - before).Milliseconds()) / time.Since(began).Seconds()
		}
		time.Sleep(time.Second)
	}
}

// countConns keeps the most connections that the system has to Postgres at a time.
func (t *turn) countConns(ctx context.Context) {
	for ctx.Err() == nil {
		var n float64
		err := t.bed.admin.QueryRow(context.WithoutCancel(ctx), `select count(*)::float8 from pg_stat_activity
			where backend_type = 'client backend' and datname = $1 and application_name <> $2`, t.database(), adminName).Scan(&n)
		if err == nil {
			t.out.conns = max(t.out.conns, n-t.ours())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// database is the name of the system's database.
func (t *turn) database() string {
	_, name, _ := strings.Cut(strings.TrimPrefix(t.plan.Postgres, "postgres://"), "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// ours is how many connections the publisher has.
func (t *turn) ours() float64 {
	if r, ok := t.to.(*riverPublisher); ok {
		return float64(r.pool.Stat().TotalConns())
	}
	return 0
}

// verify looks for the results, and for messages that were left.
func (t *turn) verify(ctx context.Context) (err error) {
	defer refused(&err)
	if t.sys.bare {
		return t.wantDuplicates()
	}
	want := t.plan.Distinct
	if t.plan.Mode == modeStorm {
		want = 0
	}
	if t.out.Calls != want || t.out.Twice > 0 {
		return fmt.Errorf("%s made %d calls instead of %d, %d of them a second time", t.plan.System, t.out.Calls, want, t.out.Twice)
	}
	n, err := t.stored(ctx)
	if err != nil {
		return err
	}
	if n != t.plan.Distinct {
		return fmt.Errorf("%s stored %d results of %d", t.plan.System, n, t.plan.Distinct)
	}
	if _, ok := t.to.(amqpPublisher); ok {
		return t.wantDuplicates()
	}
	return nil
}

// wantDuplicates checks that no more messages are left than there are duplicates: a duplicate of
// a job that still runs may come back later, and find its result.
func (t *turn) wantDuplicates() error {
	left, err := strconv.Atoi(t.bed.rabbit.Eval(t, `lists:sum([element(2, rabbit_amqqueue:stat(Q)) || Q <- rabbit_amqqueue:list(<<"%s">>)])`, t.vhost()))
	if err != nil {
		return err
	}
	if most := t.plan.Messages - t.plan.Distinct; left > most {
		return fmt.Errorf("%s left %d messages in the queues, and only %d were duplicates", t.plan.System, left, most)
	}
	return nil
}

// vhost is the name of the system's virtual host.
func (t *turn) vhost() string { return t.plan.AMQP[strings.LastIndex(t.plan.AMQP, "/")+1:] }
