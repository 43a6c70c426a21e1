package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// pointVariable makes this program a worker that kills itself (SIGKILL) at the durable point of that name; "none": it lists its points.
// scenarioVariable names what it runs, and ownVariable the one job that it takes.
const (
	pointVariable    = "PAIDONCE_E2E_POINT"
	scenarioVariable = "PAIDONCE_E2E_SCENARIO"
	ownVariable      = "PAIDONCE_E2E_OWN"
)

// deadly knows the points of one process: before and after each verb of the ledger that writes, each settling of a delivery, each write
// to a provider, a mail server or Slack, and each answer of theirs. nil has none.
type deadly struct {
	at    string
	acked atomic.Bool
	hosts map[string]string // names of servers by address

	mu   sync.Mutex
	seen []string
}

// point is where the process may die. Points of one name are numbered.
func (d *deadly) point(name string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 1
	for _, s := range d.seen {
		if strings.HasPrefix(s, name+" #") {
			n++
		}
	}
	name = fmt.Sprintf("%s #%d", name, n)
	d.seen = append(d.seen, name)
	if name == d.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// around has a point before and after do.
func (d *deadly) around(what string, do func() error) error {
	d.point(what + ", before")
	err := do()
	d.point(what + ", after")
	return err
}

// dial connects to a server whose every exchange has points.
func (d *deadly) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || d == nil {
		return c, err
	}
	name := d.hosts[addr]
	if name == "" {
		return nil, errors.Join(fmt.Errorf("%s is no server of this test", addr), c.Close())
	}
	return &deadlyConn{c, d, name}, nil
}

// answers ends the names of points at which a server was heard. How many there are depends on how its answer is cut into packets.
const answers = " answers"

type deadlyConn struct {
	net.Conn
	d    *deadly
	name string
}

func (c *deadlyConn) Write(p []byte) (n int, err error) {
	what := c.name + " is told"
	if string(p) == "\r\n.\r\n" || string(p) == ".\r\n" {
		what = c.name + " is told the mail's end"
	}
	err = c.d.around(what, func() error { n, err = c.Conn.Write(p); return err })
	return n, err
}

func (c *deadlyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.d.point(c.name + answers)
	}
	return n, err
}

// deadlySource hands out deliveries of one job. All others stay unsettled, and come back when the process is gone.
type deadlySource struct {
	broker.Source
	d   *deadly
	own string // is in the body
}

func (s deadlySource) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	for {
		ds, err := s.Source.Receive(ctx, n)
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			if strings.Contains(string(d.Body), s.own) {
				s.d.point("receive")
				return []broker.Delivery{d}, nil
			}
		}
	}
}

func (s deadlySource) Ack(ctx context.Context, d broker.Delivery) error {
	err := s.d.around("ack", func() error { return s.Source.Ack(ctx, d) })
	s.d.acked.Store(err == nil)
	return err
}

func (s deadlySource) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return s.d.around("nack", func() error { return s.Source.Nack(ctx, d, delay) })
}

// deadlyStore has points around the verbs that write of a job. It looks after no other jobs than those that its process claims.
type deadlyStore struct {
	ledger.Store
	d *deadly
}

// verb is the name of a point: the job's action and the verb.
func verb(k ledger.Key, verb string) string { return strings.Split(k.Text, ":")[1] + " " + verb }

func (s deadlyStore) Claim(ctx context.Context, r ledger.Request) (c ledger.Claimed, err error) {
	err = s.d.around(verb(r.Key, "claim"), func() error { c, err = s.Store.Claim(ctx, r); return err })
	return c, err
}

func (s deadlyStore) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	return s.d.around(verb(l.Key, "send"), func() error { return s.Store.Send(ctx, l, a) })
}

func (s deadlyStore) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (r ledger.Settled, err error) {
	err = s.d.around("settle", func() error { r, err = s.Store.Settle(ctx, id, e); return err })
	return r, err
}

func (s deadlyStore) Apply(ctx context.Context, l ledger.Lease, id ledger.ID, h ledger.Hook) error {
	return s.d.around(verb(l.Key, "apply"), func() error { return s.Store.Apply(ctx, l, id, h) })
}

func (s deadlyStore) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	return s.d.around(verb(l.Key, "complete"), func() error { return s.Store.Complete(ctx, l, r) })
}

func (s deadlyStore) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (r ledger.Released, err error) {
	err = s.d.around(verb(l.Key, "release"), func() error { r, err = s.Store.Release(ctx, l, o); return err })
	return r, err
}

func (deadlyStore) Sweep(context.Context, int) (ledger.Swept, error) { return ledger.Swept{}, nil }

func (deadlyStore) Due(context.Context, int, time.Duration, ...string) ([]ledger.Stored, error) {
	return nil, nil
}

func (deadlyStore) Adopt(context.Context, ledger.Adoption) ([]ledger.Adopted, error) { return nil, nil }

// scenario is a job that workers die at.
type scenario struct {
	name     string
	register func(reg *job.Registry, d *deadly) error // by the environment; d nil: nobody dies
	keys     func(id string) []string                 // all that is done in the end
	hosts    map[string]string                        // by the variable that has their URL
}

// runDeadly is the process of such a worker. It ends by its own hand, or when its job is done.
func runDeadly() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	sc := scenarios[os.Getenv(scenarioVariable)]
	d := &deadly{at: os.Getenv(pointVariable), hosts: map[string]string{}}
	for variable, name := range sc.hosts {
		u, err := url.Parse(os.Getenv(variable))
		if err != nil {
			return err
		}
		d.hosts[u.Host] = name
	}
	led, err := postgres.Open(ctx, os.Getenv("PAIDONCE_LEDGER_URL"), postgres.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	b, err := rabbitmq.Open(ctx, rabbitmq.Config{URL: os.Getenv("PAIDONCE_BROKER_URL"), Queue: os.Getenv("PAIDONCE_BROKER_QUEUE"), Declare: true, Prefetch: 500})
	if err != nil {
		return err
	}
	reg := new(job.Registry)
	if err := sc.register(reg, d); err != nil {
		return err
	}
	own := os.Getenv(ownVariable)
	c, err := consumer.New(consumer.Config{
		Name: "deadly " + sc.name + " " + own, Source: deadlySource{b, d, fmt.Sprintf("%q", own)}, Store: deadlyStore{led, d}, Handlers: reg,
		Workers: 1, // so that points come in one order
		Lease:   10 * time.Minute, Wire: &http.Transport{DialContext: d.dial}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	go func() {
		for !d.acked.Load() || !done(ctx, led, sc.keys(own)) {
			time.Sleep(20 * time.Millisecond)
		}
		d.mu.Lock()
		fmt.Println(strings.Join(d.seen, "\n"))
		os.Exit(0)
	}()
	return errors.Join(c.Run(ctx), errors.New("the job was not done in time"))
}

func done(ctx context.Context, led *postgres.Ledger, keys []string) bool {
	for _, k := range keys {
		tenant, _, _ := strings.Cut(k, ":")
		if j, err := led.Job(ctx, ledger.Key{Tenant: tenant, Text: k}); err != nil || j.State != ledger.Done {
			return false
		}
	}
	return true
}
