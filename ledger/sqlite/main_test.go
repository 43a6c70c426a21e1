package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/leaktest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// childVariable makes the test binary a process that loads the ledger in the file it
// names.
const childVariable = "SQLITE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		if err := load(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

// load takes jobs through the ledger until it is killed or its input ends, and says of each
// verb that it was answered: "sent KEY ATTEMPT", "done KEY".
func load(path string) error {
	l, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return err
	}
	defer l.Close()
	name := fmt.Sprint("pid-", os.Getpid())
	w, err := l.Join(context.Background(), ledger.Worker{ID: name, TTL: time.Hour})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // the parent closes our input
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		stop()
	}()
	var out sync.Mutex
	say := func(format string, a ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", a...)
	}
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := life(l, w, fmt.Sprintf("%s-%d-%d", name, g, i), say); err != nil {
					errs <- err
					stop()
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// life takes one job from its claim to its result.
func life(l *sqlite.Ledger, w ledger.WorkerID, name string, say func(string, ...any)) error {
	ctx := context.Background()
	r := request(w, name)
	c, err := l.Claim(ctx, r)
	if err != nil {
		return err
	}
	if c.Verdict != ledger.Run {
		return fmt.Errorf("claim %s: %s", name, c.Verdict)
	}
	a := attempt()
	if err := l.Send(ctx, c.Lease, a); err != nil {
		return err
	}
	say("sent %s %s", r.Key.Text, a.ID)
	if _, err := l.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: c.Lease.Job, ID: a.ID}, answer()); err != nil {
		return err
	}
	early := hook(func(ctx context.Context, tx sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into early values (?)", a.ID.String())
		return err
	})
	if err := l.Apply(ctx, c.Lease, a.ID, early); err != nil {
		return err
	}
	say("applied %s %s", r.Key.Text, a.ID)
	mark := hook(func(ctx context.Context, tx sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into mark values (?)", r.Key.Text)
		return err
	})
	if err := l.Complete(ctx, c.Lease, ledger.Result{ID: ledger.NewID(), Body: []byte(name), Used: []ledger.ID{a.ID}, Hooks: []ledger.Hook{mark},
		Steps: []ledger.StepAsk{mailTo(name)}}); err != nil {
		return err
	}
	say("done %s", r.Key.Text)
	return nil
}

func request(w ledger.WorkerID, name string) ledger.Request {
	return ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:invoice.extract:" + name}, Action: "invoice.extract",
		InputHash: ledger.Hash{1}, Input: []byte("{}"), Carrier: ledger.CarriedByBroker, Worker: w, Token: ledger.NewID(), MaxRun: time.Hour}
}

func attempt() ledger.Attempt {
	return ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "extract"}, Route: "primary", Timeout: time.Minute, Reserve: 5}
}

func answer() ledger.Evidence {
	return ledger.Evidence{State: ledger.Received, By: ledger.BySender, Cost: new(ledger.Nano(3)), CostSource: "provider",
		Response: &ledger.Response{Codec: "json", Body: []byte("{}")}}
}

// process is a child that loads the ledger.
type process struct {
	*exec.Cmd
	stop  func() // closes its input
	lines chan string
}

func child(t *testing.T, path string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self), lines: make(chan string, 1<<16)}
	p.Env = append(os.Environ(), childVariable+"="+path)
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stop = func() { _ = in.Close() }
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}
