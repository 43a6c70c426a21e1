package e2e

import (
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

// bury runs a worker that lives, and then for each of its points one that dies there. What they left behind stays.
func (g *graveyard) bury() {
	g.t.Helper()
	g.points = map[string]string{}
	var wg sync.WaitGroup
	next := make(chan string)
	first := g.broker(0)
	points := g.run(first, 0, "none")
	for lane := range lanes {
		b := first
		if lane > 0 {
			b = g.broker(lane)
		}
		wg.Go(func() {
			for point := range next {
				g.run(b, lane, point)
			}
		})
	}
	for _, point := range points {
		next <- point
	}
	close(next)
	wg.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
	g.t.Logf("%d workers died:\n%s", len(points), strings.Join(points, "\n"))
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

// run runs a process that dies at a point, or says which it has.
func (g *graveyard) run(b *rabbitmq.Broker, lane int, point string) (points []string) {
	g.mu.Lock()
	id := fmt.Sprintf("%s-%d", g.sc.name, len(g.ids))
	g.ids, g.points[id] = append(g.ids, id), point
	g.mu.Unlock()
	m := broker.Message{Body: []byte(g.body(id)), Attributes: map[string]string{consumer.Attribute: g.sc.name}}
	if err := b.Publish(g.t.Context(), m); err != nil {
		g.t.Error(err)
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		g.t.Error(err)
		return nil
	}
	var out, log bytes.Buffer
	cmd := exec.CommandContext(g.t.Context(), self)
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Env = append(slices.Clone(g.env), pointVariable+"="+point, scenarioVariable+"="+g.sc.name, ownVariable+"="+id, "PAIDONCE_BROKER_QUEUE="+g.queue(lane))
	err = cmd.Run()
	exit, _ := errors.AsType[*exec.ExitError](err)
	killed := exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	spared := err == nil && (point == "none" || strings.Contains(point, answers) && !strings.HasSuffix(point, " #1")) // its answers came in fewer packets
	if !killed && !spared {
		g.t.Errorf("worker %s, which was to die at %q, ended with %v\n%s", id, point, err, log.String())
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// died wants each of the points to be among those at which a process died.
func (g *graveyard) died(points ...string) {
	g.t.Helper()
	seen := slices.Collect(maps.Values(g.points))
	for _, p := range points {
		if !slices.Contains(seen, p+" #1") {
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
