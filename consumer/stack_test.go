package consumer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// waits is the Do of a call that waits for its model for as long as anybody looks.
//
//go:noinline
func waits(ctx context.Context, a *job.Attempt, waiting func()) (string, error) {
	if err := a.Sent(ctx); err != nil {
		return "", err
	}
	waiting()
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// mostBelow is the bytes of stack that may lie below a Do that waits. A stack of 4 KiB has room for 3,168, and what was called and has
// returned by then, such as the making of a context by which the route's time is limited, needs some 800 of them.
const mostBelow = 2350

// TestWaitingFrames: so little stack lies below a call that waits that 4 KiB are enough for its goroutine. The runtime says how
// much only of a process that dies, so this test runs itself.
func TestWaitingFrames(t *testing.T) {
	const child = "PAIDONCE_TEST_DIES"
	if os.Getenv(child) != "" {
		dieWaiting(t)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWaitingFrames$")
	cmd.Env = append(os.Environ(), child+"=1", "GOTRACEBACK=system")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "look at the frames") {
		t.Fatalf("the process that was to die: %v\n%s", err, out)
	}
	below := framesBelow(t, string(out), "consumer_test.waits(")
	t.Logf("%d bytes", below)
	if below > mostBelow+roomOfRace {
		t.Errorf("%d bytes of stack lie below a call that waits, want at most %d", below, mostBelow+roomOfRace)
	}
}

// dieWaiting ends the process while a call waits.
func dieWaiting(t *testing.T) {
	c := aCall(t, memledger.New(), func() { go panic("look at the frames") })
	t.Fatal(c.Run(t.Context()))
}

// aCall is a consumer with one message, whose call tells that it waits.
func aCall(t *testing.T, store ledger.Store, waiting func()) *consumer.Consumer {
	t.Helper()
	r := &rig{T: t, q: memory.New(memory.Options{})}
	call := job.Call[ask, string]{Name: "generate", Routes: []job.Route[ask, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, _ ask) (string, error) { return waits(ctx, a, waiting) }}}}
	var reg job.Registry
	job.Register(&reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) { return call.Run(ctx, j, in) }})
	c, err := consumer.New(consumer.Config{Source: r.q.Source(), Store: store, Handlers: &reg})
	if err != nil {
		t.Fatal(err)
	}
	r.publish(ask{Tenant: "acme", Doc: "d"})
	return c
}

// framesBelow reads a trace: from the frame of the function to the beginning of its goroutine's stack.
func framesBelow(t *testing.T, trace, function string) int {
	t.Helper()
	frame := regexp.MustCompile(` fp=0x([0-9a-f]+) sp=`)
	for g := range strings.SplitSeq(trace, "\n\n") {
		_, from, ok := strings.Cut(g, function)
		frames := frame.FindAllStringSubmatch(from, -1)
		if !ok || len(frames) < 2 {
			continue
		}
		waits, err := strconv.ParseUint(frames[0][1], 16, 64)
		top, terr := strconv.ParseUint(frames[len(frames)-1][1], 16, 64)
		if err != nil || terr != nil {
			t.Fatal(err, terr)
		}
		return int(top - waits)
	}
	t.Fatalf("no frame of %s in %s", function, trace)
	return 0
}

// aside is a ledger that notes which verbs were made on the goroutine of a handler.
type aside struct {
	ledger.Store
	below func(verb string)
}

func (s *aside) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	s.below("claim")
	return s.Store.Claim(ctx, r)
}

func (s *aside) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	s.below("look")
	return s.Store.Look(ctx, l, c)
}

func (s *aside) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	s.below("send")
	return s.Store.Send(ctx, l, a)
}

func (s *aside) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	s.below("settle")
	return s.Store.Settle(ctx, id, e)
}

// TestVerbsAside: a goroutine keeps the stack that it once needed, so a handler waits on one that has claimed nothing, and that
// makes none of the ledger's verbs for its calls. The second call is looked for, since the first has sent something.
func TestVerbsAside(t *testing.T) {
	var mu sync.Mutex
	var verbs, deep []string
	note := func(verb, apart string) {
		mu.Lock()
		defer mu.Unlock()
		verbs = append(verbs, verb)
		if onStack(apart) {
			deep = append(deep, verb)
		}
	}
	bubble(t, memory.Options{}, func(r *rig) {
		do := r.call.Routes[0].Do
		r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
			note("do", "consumer.(*Consumer).turn")
			return do(ctx, a, in)
		}
		second := r.call
		second.Name = "second"
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			_, err := second.Run(ctx, j, in)
			return err
		}
		n := r.start("w", func(c *consumer.Config) {
			c.Handlers = r.handlers(second)
			c.Store = &aside{c.Store, func(verb string) { note(verb, "consumer.(*execution).story") }}
		})
		r.send("d")
		time.Sleep(time.Minute)
		r.end(n)
	})
	if want := []string{"claim", "do", "send", "settle", "look", "do", "send", "settle"}; !slices.Equal(verbs, want) {
		t.Errorf("verbs: %v, want %v", verbs, want)
	}
	if len(deep) > 0 {
		t.Errorf("on a goroutine that keeps its stack: %v", deep)
	}
}

// TestClaimsAtOnce: of three hundred messages that come at once no more than 256 ask the ledger together, and all are dealt with.
func TestClaimsAtOnce(t *testing.T) {
	var mu sync.Mutex
	var asking, most int
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		asking += d
		most = max(most, asking)
	}
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.Workers = 300
		n := r.start("w", func(c *consumer.Config) {
			c.Store = &aside{c.Store, func(verb string) {
				if verb != "claim" {
					return
				}
				count(1)
				time.Sleep(time.Second)
				count(-1)
			}}
		})
		for i := range 300 {
			r.send(fmt.Sprint("d", i))
		}
		time.Sleep(time.Minute)
		for i := range 300 {
			r.want(fmt.Sprint("d", i), want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		}
		r.queue(memory.Depth{})
		r.end(n)
	})
	if most != 256 {
		t.Errorf("%d claims asked the ledger at once, want 256", most)
	}
}

// onStack reports whether a function of that name called the caller.
func onStack(name string) bool {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasSuffix(f.Function, name) {
			return true
		}
	}
	return false
}
