package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/job"
)

// lanes is how many processes die at a time, each of them on a queue of its own.
const lanes = 3

// graveyard is a World in which a worker dies at every durable point of a scenario, each time with a job of its own.
type graveyard struct {
	*World
	sc   scenario
	body func(id string) string

	mu     sync.Mutex
	ids    []string
	points map[string]string // where the worker of an id died
}

// bury starts a process for each point, until one survives. It leaves what they left behind.
func (g *graveyard) bury() {
	g.t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	over := make(chan struct{})
	stop := sync.OnceFunc(func() { close(over) })
	for lane := range lanes {
		wg.Go(func() {
			b := g.broker(lane)
			for n := range next {
				if g.die(b, lane, n) {
					stop()
				}
			}
		})
	}
	for n := 1; ; n++ {
		select {
		case next <- n:
			if n < 300 {
				continue
			}
			g.t.Error("no worker survives")
		case <-over:
		}
		break
	}
	close(next)
	wg.Wait()
}

func (g *graveyard) queue(lane int) string {
	return fmt.Sprintf("%s.%d", g.setting("PAIDONCE_BROKER_QUEUE"), lane)
}

func (g *graveyard) setting(name string) string {
	for _, e := range g.env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	g.t.Fatalf("%s is not set", name)
	return ""
}

func (g *graveyard) broker(lane int) *rabbitmq.Broker {
	b, err := rabbitmq.Open(g.t.Context(), rabbitmq.Config{URL: g.setting("PAIDONCE_BROKER_URL"), Queue: g.queue(lane), Declare: true})
	if err != nil {
		g.t.Error(err)
		return nil
	}
	g.t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

// die runs the nth process and reports whether it survived.
func (g *graveyard) die(b *rabbitmq.Broker, lane, n int) bool {
	id := fmt.Sprintf("%s-%d", g.sc.name, n)
	m := broker.Message{Body: []byte(g.body(id)), Attributes: map[string]string{consumer.Attribute: g.sc.name}}
	if err := b.Publish(g.t.Context(), m); err != nil {
		g.t.Error(err)
		return true
	}
	self, err := os.Executable()
	if err != nil {
		g.t.Error(err)
		return true
	}
	var out, log bytes.Buffer
	cmd := exec.CommandContext(g.t.Context(), self)
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Env = append(slices.Clone(g.env), fmt.Sprintf("%s=%d", pointVariable, n), scenarioVariable+"="+g.sc.name, ownVariable+"="+id,
		"PAIDONCE_BROKER_QUEUE="+g.queue(lane))
	err = cmd.Run()
	where, _ := bufio.NewReader(&out).ReadString('\n')
	where = strings.TrimSpace(where)
	exit, _ := errors.AsType[*exec.ExitError](err)
	killed := exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if killed == (where == survived) || where == "" {
		g.t.Errorf("worker %s ended with %v at %q\n%s", id, err, where, log.String())
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids, g.points[id] = append(g.ids, id), where
	return where == survived
}

// died wants each of the points to be among those at which a process died.
func (g *graveyard) died(points ...string) {
	g.t.Helper()
	seen := slices.Collect(maps.Values(g.points))
	for _, p := range points {
		if !slices.Contains(seen, p) {
			g.t.Errorf("no worker died at %q", p)
		}
	}
}

// heirs starts workers that live, one on each queue, to whom everything falls at once: the leases of the dead are over.
func (g *graveyard) heirs() {
	g.t.Helper()
	g.sql("update paidonce.worker set lease_until = clock_timestamp() where closed_at is null")
	for _, e := range g.env { // scenarios are made by the environment
		name, v, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "PAIDONCE_") {
			g.t.Setenv(name, v)
		}
	}
	for lane := range lanes {
		reg := new(job.Registry)
		if err := g.sc.register(reg, nil); err != nil {
			g.t.Fatal(err)
		}
		b := g.broker(lane)
		c, err := consumer.New(consumer.Config{Name: fmt.Sprint("heir ", lane), Source: b, Store: g.Ledger, Handlers: reg, Workers: 16, Lease: 30 * time.Second,
			Tick: 300 * time.Millisecond, SettleWindow: pointTimeout, Hold: pointTimeout, Retry: consumer.Backoff{First: 200 * time.Millisecond, Ceil: time.Second},
			Log: slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			g.t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		g.t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				g.t.Errorf("heir %d: %v", lane, err)
			}
		})
	}
}

// sql runs a statement beside the ledger.
func (g *graveyard) sql(statement string) {
	g.t.Helper()
	c, err := pgx.Connect(g.t.Context(), g.URL)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(g.t.Context(), statement); err != nil {
		g.t.Fatal(err)
	}
}

// drained wants empty queues, and no dead letters.
func (g *graveyard) drained() {
	g.t.Helper()
	srv, vhost := rabbittest.Start(g.t), g.setting("PAIDONCE_BROKER_URL")
	for lane := range lanes {
		for _, q := range []string{g.queue(lane), g.queue(lane) + ".dead"} {
			g.Eventually(func() (bool, string) {
				ready, unacked := srv.Depth(g.t, vhost, q)
				return ready+unacked == 0, fmt.Sprintf("%s holds %d and %d unacked", q, ready, unacked)
			})
		}
	}
}
