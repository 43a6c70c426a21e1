package outage_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// filled is a rig on a server whose disk is made full.
type filled struct {
	*rig
	server *pgtest.Server
	worker *node
}

// newFilled starts a worker on a ledger without any job: whatever it stores first needs room.
func newFilled(t *testing.T) *filled {
	t.Helper()
	s := pgtest.StartWithDisk(t)
	r := rigAt(t, s.URL(t), modelserver.Options{})
	r.cfg.MaxRuns = 1 // no run may be spent on the outage
	return &filled{rig: r, server: s}
}

func (f *filled) begin() {
	f.Helper()
	f.worker = f.start("w1", f.ledger(f.direct, postgres.Options{}))
	f.eventually("the worker has joined", func() bool { return f.count("select count(*) from paidonce.worker") == 1 })
}

// full makes the disk full, and untilMet waits until so many writes have met it.
func (f *filled) full() { f.server.SetDisk(f.T, pgtest.Disk{Full: true}) }

func (f *filled) untilMet(n int) {
	f.Helper()
	before := f.server.Refused(f.T)
	f.eventually(fmt.Sprintf("%d writes more meet the full disk", n), func() bool { return f.server.Refused(f.T) >= before+n })
}

// held asks the provider, whose answer is kept back.
func (f *filled) held() {
	f.Helper()
	f.models.ScriptAny(modelserver.Fault{Hold: true, Times: 1})
	f.begin()
	f.publish("a")
	f.awaitBilled(1)
}

func (f *filled) release() {
	f.Helper()
	if f.models.Release(key("a").Text) != 1 {
		f.Error("the call is not held")
	}
}

// waits compares what is on record while there is no room: the message is in the worker's hands.
func (f *filled) waits(want string) {
	f.Helper()
	got := "no row"
	if n := f.count("select count(*) from paidonce.job"); n == 1 {
		j, err := f.look.Job(f.Context(), key("a"))
		if err != nil {
			f.Fatal(err)
		}
		got = fmt.Sprintf("%s runs %d open %d result %t attempts", j.State, j.Runs, j.OpenCalls, j.Result != nil)
		for _, a := range j.Attempts {
			got += " " + string(a.State)
		}
	}
	_, held, dead := f.queue.depth(f.T)
	got += fmt.Sprintf(", %d marks of it, %d on the bill, %d held, %d dead, %d acked", f.count("select count(*) from mark where key = $1", key("a").Text),
		len(f.models.Bill()), held, dead, f.noted(f.settled, "acked"))
	if got != want {
		f.Errorf("while there is no room\ngot  %s\nwant %s", got, want)
	}
}

// goesOn makes room, and compares the end: one run, one attempt, one line on the bill, one ack.
func (f *filled) goesOn() {
	f.Helper()
	f.server.SetDisk(f.T, pgtest.Disk{})
	f.ends()
}

func (f *filled) ends() {
	f.Helper()
	f.db.Reset() // its connections may be of a server that died
	f.eventually("the ledger can be read", func() bool { return f.look.Ping(f.Context()) == nil && f.db.Ping(f.Context()) == nil })
	f.awaitDone(1)
	f.worker.drain()
	f.wantDone([]string{"a"}, 1)
	if j, err := f.look.Job(f.Context(), key("a")); err != nil || j.Runs != 1 {
		f.Errorf("%d runs (%v), want 1", j.Runs, err)
	}
	if n := f.noted(f.settled, "acked"); n != 1 {
		f.Errorf("deliveries %v, want 1 acked", f.settled)
	}
}

// The ledger's disk is full when a verb wants room. It is an outage: what is told is not lost, what was paid is not paid again,
// no message is acknowledged before its end is on record, no run is spent, and the job goes on when there is room.
func TestFullDiskAtTheClaim(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.begin()
	f.full()
	f.publish("a")
	f.untilMet(3)
	f.waits("no row, 0 marks of it, 0 on the bill, 1 held, 0 dead, 0 acked")
	f.goesOn()
}

func TestFullDiskAtTheGate(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	var once sync.Once
	f.before = func() { once.Do(f.full) }
	f.begin()
	f.publish("a")
	f.untilMet(2)
	f.eventually("the run is given back", func() bool {
		return f.count("select count(*) from paidonce.job where state = 'ready' and error_class = 'ledger_full'") == 1
	})
	f.waits("ready runs 0 open 0 result false attempts, 0 marks of it, 0 on the bill, 1 held, 0 dead, 0 acked")
	f.goesOn()
}

func TestFullDiskAtTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.held()
	f.full()
	f.release()
	f.untilMet(3)
	f.waits("running runs 1 open 1 result false attempts sent, 0 marks of it, 1 on the bill, 1 held, 0 dead, 0 acked")
	f.goesOn()
}

// The worker ends before there is room: its answer, which only it had, is lost with it, and the call is unknown. It is held,
// and not paid again.
func TestFullDiskUntilTheWorkerEnds(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.cfg.Drain, f.cfg.Lease = 2*time.Second, 2*time.Second
	f.held()
	f.full()
	f.release()
	f.untilMet(2)
	f.worker.drain()
	f.server.SetDisk(t, pgtest.Disk{})
	f.worker = f.start("w2", f.ledger(f.direct, postgres.Options{}))
	f.eventually("the call is unknown", func() bool { return f.count("select count(*) from paidonce.job where state = 'unknown'") == 1 })
	f.awaitEmpty() // the ledger carries it
	f.worker.drain()
	j, err := f.look.Job(t.Context(), key("a"))
	if err != nil {
		t.Fatal(err)
	}
	if len(j.Attempts) != 1 || j.Attempts[0].State != ledger.Sent || j.OpenCalls != 1 || j.Carrier != ledger.CarriedByLedger || j.Result != nil {
		t.Errorf("carried by the %s, %d open calls, attempts %+v, result %v; want one sent call, held by the ledger", j.Carrier, j.OpenCalls, j.Attempts, j.Result)
	}
	if n := len(f.models.Bill()); n != 1 {
		t.Errorf("%d lines on the bill, want 1", n)
	}
	if n := f.count("select count(*) from mark"); n != 0 {
		t.Errorf("%d of the user's rows, want none", n)
	}
	f.wantQueues(0, 0)
}

// fullBehindTheAnswer fills the disk when the handler has its answer: the job waits with it until there is room.
func (f *filled) fullBehindTheAnswer() {
	f.Helper()
	f.after = f.full
	f.begin()
	f.publish("a")
	f.untilMet(3)
	f.waits("running runs 1 open 0 result false attempts received, 0 marks of it, 1 on the bill, 1 held, 0 dead, 0 acked")
	f.goesOn()
}

// The user's own rows find no room: that is the ledger's trouble, and no error of the user's work.
func TestFullDiskAtTheRows(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.fullBehindTheAnswer()
}

func TestFullDiskAtTheResult(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.exec("insert into mark values ('other')") // there is room for the user's row
	f.fullBehindTheAnswer()
}

// The disk of the write-ahead log is full: the server dies, and is there again once there is room.
func TestFullLogAtTheClaim(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.begin()
	f.server.FillLog(t)
	f.publish("a")
	f.eventually("the worker has the message", func() bool { _, held, _ := f.queue.depth(t); return held == 1 })
	f.server.Recover(t)
	f.ends()
}

func TestFullLogAtTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFilled(t)
	f.held()
	f.server.FillLog(t)
	f.release()
	f.server.Recover(t)
	f.ends()
}
