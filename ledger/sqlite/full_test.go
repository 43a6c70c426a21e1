package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// long does not fit into a page that a table has already.
var long = strings.Repeat("x", 20_000)

func (f *fixture) fill() {
	f.Helper()
	if err := f.Fill(f.Context()); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) empty() {
	f.Helper()
	if err := f.Empty(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// TestFull: a verb that finds no room is refused with a code, nothing of it happens, and it is done once there is room. Others that are
// committed with it, and need none, are not harmed.
func TestFull(t *testing.T) {
	f := newFixture(t)
	r := request(f.worker, "a")
	r.Input = []byte(`"` + long + `"`)
	lease := ledger.Lease{}
	full := func(what string, do func() error) {
		t.Helper()
		f.fill()
		if err := do(); !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
			t.Errorf("%s without room: %v, want ErrFull", what, err)
		}
		f.empty()
		if err := do(); err != nil {
			t.Errorf("%s with room: %v", what, err)
		}
	}
	full("claim", func() error {
		c, err := f.Claim(t.Context(), r)
		lease = c.Lease
		return err
	})
	a := attempt()
	if err := f.Send(t.Context(), lease, a); err != nil {
		t.Fatal(err)
	}
	e := answer()
	e.Response.Body = []byte(`"` + long + `"`)
	full("settle", func() error {
		_, err := f.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}, e)
		return err
	})
	ran := 0
	full("the user's rows", func() error {
		return f.complete(t.Context(), lease, "", func(ctx context.Context, tx sqlite.Tx) error {
			ran++
			_, err := tx.ExecContext(ctx, "insert into mark values (?)", long)
			return err
		})
	})
	if ran != 2 {
		t.Errorf("the user's work ran %d times, want 2", ran)
	}
	j, err := f.Job(t.Context(), r.Key)
	if err != nil || j.State != ledger.Done || j.Runs != 1 || j.OpenCalls != 0 || len(j.Attempts) != 1 || j.Result == nil {
		t.Errorf("at the end %+v, %v", j, err)
	}
	if m := marks(t, raw(t, f.path)); len(m) != 1 || m[0] != long {
		t.Errorf("%d of the user's rows, want 1", len(m))
	}
	f.fill()
	defer f.empty()
	large := request(f.worker, "large")
	large.Input = r.Input
	errs := f.together(
		func() error { _, err := f.Claim(t.Context(), request(f.worker, "b")); return err },
		func() error { _, err := f.Claim(t.Context(), large); return err },
		func() error { _, err := f.Claim(t.Context(), request(f.worker, "c")); return err })
	if errs[0] != nil || !errors.Is(errs[1], ledger.ErrFull) || errs[2] != nil {
		t.Errorf("in a group: %v, want ErrFull of the second alone", errs)
	}
}

// TestFullIgnored: the engine takes the whole transaction back when a statement finds no room. Work that overlooks that commits nothing, and
// no result is there without its rows.
func TestFullIgnored(t *testing.T) {
	f := newFixture(t)
	lease := f.run("a")
	small, large := mark("small"), mark(long)
	work := func(ctx context.Context, tx sqlite.Tx) error {
		_, _, _ = small(ctx, tx), large(ctx, tx), small(ctx, tx)
		return nil
	}
	f.fill()
	if err := f.complete(t.Context(), lease, "", work); !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
		t.Errorf("without room: %v, want ErrFull", err)
	}
	if m := marks(t, raw(t, f.path)); f.state("a") != ledger.Running || len(m) != 0 {
		t.Errorf("without room the job is %s, with %d of the user's rows", f.state("a"), len(m))
	}
	f.empty()
	if err := f.complete(t.Context(), lease, "", work); err != nil {
		t.Errorf("with room: %v", err)
	}
	if m := marks(t, raw(t, f.path)); f.state("a") != ledger.Done || len(m) != 3 {
		t.Errorf("with room the job is %s, with %d of the user's rows, want 3", f.state("a"), len(m))
	}
}

// TestFullReturning: rows of the user that are written by a query find no room as others do: that is the ledger's trouble.
func TestFullReturning(t *testing.T) {
	const insert = "insert into mark values (?) returning m"
	for name, write := range map[string]func(context.Context, sqlite.Tx) error{
		"a row": func(ctx context.Context, tx sqlite.Tx) error {
			return tx.QueryRowContext(ctx, insert, long).Scan(new(string))
		},
		"rows": func(ctx context.Context, tx sqlite.Tx) error {
			rows, err := tx.QueryContext(ctx, insert, long)
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			return errors.Join(rows.Err(), rows.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			lease := f.run("a")
			f.fill()
			if err := f.complete(t.Context(), lease, "", write); !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
				t.Errorf("without room: %v, want ErrFull", err)
			}
			f.empty()
			if err := f.complete(t.Context(), lease, "", write); err != nil {
				t.Errorf("with room: %v", err)
			}
			if m := marks(t, raw(t, f.path)); len(m) != 1 || m[0] != long {
				t.Errorf("%d of the user's rows, want 1", len(m))
			}
		})
	}
}

// note is the message of these tests.
type note struct {
	Tenant, Doc, Text string
}

func (n note) JobKey() job.Key { return job.K(n.Tenant, "note", n.Doc) }

// desk is a worker on a ledger whose disk gets full.
type desk struct {
	*fixture
	device  bool // it is the disk that is full: nothing at all can be committed
	queue   *memory.Queue
	asked   chan struct{} // a call is under way
	answer  chan struct{} // lets it be answered
	calls   atomic.Int32
	after   func() // in the handler, after the call
	refused atomic.Int32
	stop    func()
}

// counted is a ledger that counts how often there was no room.
type counted struct {
	*sqlite.Ledger
	full   *atomic.Int32
	joined chan<- struct{} // the worker is there
}

func (c counted) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	id, err := c.Ledger.Join(ctx, w)
	if err == nil {
		c.joined <- struct{}{}
	}
	return id, err
}

func (c counted) told(err error) error {
	if errors.Is(err, ledger.ErrFull) {
		c.full.Add(1)
	}
	return err
}

func (c counted) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	claimed, err := c.Ledger.Claim(ctx, r)
	return claimed, c.told(err)
}

func (c counted) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	s, err := c.Ledger.Settle(ctx, id, e)
	return s, c.told(err)
}

func (c counted) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	return c.told(c.Ledger.Complete(ctx, l, r))
}

// fill takes all room.
func (d *desk) fill() {
	if d.device {
		fillDisk(d, 0)
		return
	}
	d.fixture.fill()
}

// empty gives it back.
func (d *desk) empty() {
	if d.device {
		emptyDisk()
		return
	}
	d.fixture.empty()
}

// onDesks runs a test where statements find no room, and where the commit finds none.
func onDesks(t *testing.T, test func(*desk)) {
	for name, device := range map[string]bool{"pages": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if d.device = device; device {
				fillDisk(t, -1) // from here, since the test ends if it cannot be filled
			}
			test(d)
		})
	}
}

func newDesk(t *testing.T) *desk {
	d := &desk{fixture: newFixture(t), queue: memory.New(memory.Options{}), asked: make(chan struct{}, 9), answer: make(chan struct{})}
	call := job.Call[note, string]{Name: "read", Routes: []job.Route[note, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, n note) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			d.calls.Add(1)
			d.asked <- struct{}{}
			<-d.answer
			return long, nil
		}}}}
	var reg job.Registry
	job.Register(&reg, job.Def[note, string]{Name: "note", Uses: job.Uses(call), Handle: func(ctx context.Context, j *job.Run, n note) (string, error) {
		out, err := call.Run(ctx, j, n)
		if err != nil {
			return "", err
		}
		d.after()
		sqlite.OnCommit(j, func(ctx context.Context, tx sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into mark values (?)", out)
			return err
		})
		return out, nil
	}})
	d.after = func() {}
	joined := make(chan struct{}, 9)
	c, err := consumer.New(consumer.Config{Name: "w2", Source: d.queue.Source(), Store: counted{d.Ledger, &d.refused, joined}, Handlers: &reg, MaxRuns: 1,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	})
	d.stop = sync.OnceFunc(func() { stop(); run.Wait() })
	t.Cleanup(d.stop)
	<-joined
	return d
}

func (d *desk) send() {
	d.Helper()
	body := fmt.Sprintf(`{"Tenant":"acme","Doc":"1","Text":%q}`, long)
	if err := d.queue.Publish(d.Context(), broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: "note"}}); err != nil {
		d.Fatal(err)
	}
}

// until waits for what is so.
func (d *desk) until(what string, ok func() bool) {
	d.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			d.Fatalf("never: %s", what)
		}
	}
}

// untilMet waits until the worker found no room several times.
func (d *desk) untilMet() {
	d.Helper()
	d.until("no room", func() bool { return d.refused.Load() >= 3 })
}

// goesOn compares what is there without room, makes room, and compares the end.
func (d *desk) goesOn(state string, calls int32, attempts string) {
	d.Helper()
	got, want := d.stands(), fmt.Sprintf("%s, attempts%s, %d calls, 0 marks, %+v, 0 dead", state, attempts, calls, memory.Depth{Held: 1})
	if got != want {
		d.Errorf("without room\ngot  %s\nwant %s", got, want)
	}
	d.empty()
	if calls == 0 {
		close(d.answer)
	}
	d.until("the message is acknowledged", func() bool { return d.queue.Depth() == memory.Depth{} })
	d.stop()
	if got, want := d.stands(), fmt.Sprintf("done runs 1 open 0 result true, attempts received, 1 calls, 1 marks, %+v, 0 dead", memory.Depth{}); got != want {
		d.Errorf("at the end\ngot  %s\nwant %s", got, want)
	}
}

func (d *desk) stands() string {
	d.Helper()
	text := "no row, attempts"
	switch j, err := d.Job(d.Context(), note{Tenant: "acme", Doc: "1"}.JobKey().Ledger()); {
	case err == nil:
		text = fmt.Sprintf("%s runs %d open %d result %t, attempts", j.State, j.Runs, j.OpenCalls, j.Result != nil)
		for _, a := range j.Attempts {
			text += " " + string(a.State)
		}
	case !errors.Is(err, ledger.ErrNotFound):
		d.Fatal(err)
	}
	return fmt.Sprintf("%s, %d calls, %d marks, %+v, %d dead", text, d.calls.Load(), len(marks(d, raw(d, d.path))), d.queue.Depth(), len(d.queue.DeadLetters()))
}

func TestFullAtTheClaim(t *testing.T) {
	onDesks(t, func(d *desk) {
		d.fill()
		d.send()
		d.untilMet()
		d.goesOn("no row", 0, "")
	})
}

func TestFullAtTheAnswer(t *testing.T) {
	onDesks(t, func(d *desk) {
		d.send()
		<-d.asked
		d.fill()
		close(d.answer)
		d.untilMet()
		d.goesOn("running runs 1 open 1 result false", 1, " sent")
	})
}

func TestFullAtTheResult(t *testing.T) {
	onDesks(t, func(d *desk) {
		d.after = d.fill
		d.send()
		<-d.asked
		close(d.answer)
		d.untilMet()
		d.goesOn("running runs 1 open 0 result false", 1, " received")
	})
}
