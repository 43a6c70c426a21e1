package outage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const (
	action = "doc.read"
	model  = "gpt-5-mini"
)

// doc is the message of these tests: a paid call for a document.
type doc struct {
	Tenant string `json:"tenant"`
	Doc    string `json:"doc"`
	Text   string `json:"text"`
}

func (d doc) JobKey() job.Key { return job.K(d.Tenant, action, d.Doc) }

func key(name string) ledger.Key { return doc{Tenant: "acme", Doc: name}.JobKey().Ledger() }

// names are n documents.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("d%04d", i)
	}
	return all
}

// patience bounds each wait, on a machine that does much else.
const patience = 90 * time.Second

// end is an adapter's connection to the queue.
type end interface {
	broker.Source
	broker.Publisher
	broker.DeadLetters
	Close(context.Context) error
}

// rig is a database, a queue, a model server, and what workers did to them.
type rig struct {
	*testing.T
	direct string // the database, with nothing in between
	look   *postgres.Ledger
	db     *pgxpool.Pool
	queue  queue
	rabbit *rabbitQueue // nil on SQS
	pub    end
	models *modelserver.Server
	cfg    consumer.Config
	wrap   func(broker.Source) broker.Source // nil: the source as it is

	before, after func() // of the call, in the handler; nil: nothing

	mu      sync.Mutex
	avoided map[string]int // by cause
	settled map[string]int // deliveries by outcome
}

// queue is one queue of a broker with what belongs to it.
type queue interface {
	open(r *rig) (end, error)
	depth(t *testing.T) (ready, held, dead int)
}

// newRig takes a database of the process's server, and a queue of RabbitMQ.
func newRig(t *testing.T, o modelserver.Options) *rig {
	t.Helper()
	return rigAt(t, pgtest.URL(t), o)
}

// rigAt takes a database, and a queue of RabbitMQ.
func rigAt(t *testing.T, direct string, o modelserver.Options) *rig {
	t.Helper()
	q := newRabbitQueue(t)
	r := rigOn(t, direct, q, o)
	r.rabbit = q
	return r
}

func rigOn(t *testing.T, direct string, q queue, o modelserver.Options) *rig {
	t.Helper()
	r := &rig{T: t, direct: direct, queue: q, avoided: map[string]int{}, settled: map[string]int{}}
	o.KeyOf = func(q modelserver.Request) string { return q.MetadataKey() }
	o.Generate = func(q modelserver.Request) string { return "answer to " + q.MetadataKey() }
	var err error
	if r.models, err = modelserver.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.models.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	if err := postgres.Migrate(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	if r.db, err = pgxpool.New(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.db.Close)
	r.exec("create table mark (key text not null)") // the user's own rows
	r.look = r.ledger(direct, postgres.Options{})
	r.pub = r.open()
	r.cfg = consumer.Config{Workers: 32, Lease: 20 * time.Second, Drain: 20 * time.Second,
		Retry: consumer.Backoff{First: 200 * time.Millisecond, Ceil: time.Second}, Tick: 500 * time.Millisecond}
	return r
}

func (r *rig) log(part string) *slog.Logger {
	return slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("part", part)
}

func (r *rig) ledger(url string, o postgres.Options) *postgres.Ledger {
	r.Helper()
	l, err := postgres.Open(r.Context(), url, o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(l.Close)
	return l
}

func (r *rig) open() end {
	r.Helper()
	b, err := r.queue.open(r)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		b.Close(ctx) // tests that care close it themselves
	})
	return b
}

// through is the database behind a fault proxy.
func (r *rig) through() (*faultproxy.Proxy, string) {
	r.Helper()
	u, err := url.Parse(r.direct)
	if err != nil {
		r.Fatal(err)
	}
	p := faultproxy.Start(r, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

func (r *rig) exec(sql string) {
	r.Helper()
	if _, err := r.db.Exec(r.Context(), sql); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) count(sql string, args ...any) (n int) {
	r.Helper()
	if err := r.db.QueryRow(r.Context(), sql, args...).Scan(&n); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	return n
}

// node is one worker: a consumer with a connection of its own to the broker.
type node struct {
	r      *rig
	broker end
	stop   context.CancelFunc
	done   chan error
}

// start runs a worker on a ledger.
func (r *rig) start(name string, store ledger.Store) *node {
	r.Helper()
	n := &node{r: r, broker: r.open(), done: make(chan error, 1)}
	cfg := r.cfg
	cfg.Name, cfg.Store, cfg.Log, cfg.Handlers = name, store, r.log(name), r.handlers()
	if cfg.Source = n.broker; r.wrap != nil {
		cfg.Source = r.wrap(n.broker)
	}
	told := cfg.Trace
	cfg.Trace.Avoided = func(_, cause string, _ *ledger.Nano) { r.note(r.avoided, cause) }
	cfg.Trace.Delivered = func(job, outcome string) {
		r.note(r.settled, outcome)
		if told.Delivered != nil {
			told.Delivered(job, outcome)
		}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.done <- c.Run(ctx) }()
	r.Cleanup(stop)
	return n
}

func (r *rig) note(counts map[string]int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts[what]++
}

func (r *rig) noted(counts map[string]int, what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return counts[what]
}

// drain stops the worker in the orderly way.
func (n *node) drain() {
	n.r.Helper()
	n.stop()
	select {
	case err := <-n.done:
		if err != nil {
			n.r.Fatalf("the worker ended: %v", err)
		}
	case <-time.After(patience):
		n.r.Fatal("the worker does not end")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.broker.Close(ctx); err != nil {
		n.r.Errorf("closing the broker: %v", err)
	}
}

// handlers registers a job with a paid call and a row of its own.
func (r *rig) handlers() *job.Registry {
	call := job.Call[doc, string]{Name: "read", Routes: []job.Route[doc, string]{{
		Name: "primary", Provider: "openai", Model: model, Timeout: time.Minute, Do: r.ask}}}
	var reg job.Registry
	job.Register(&reg, job.Def[doc, string]{Name: action, Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, d doc) (string, error) {
			if r.before != nil {
				r.before()
			}
			answer, err := call.Run(ctx, j, d)
			if err != nil {
				return "", err
			}
			if r.after != nil {
				r.after()
			}
			postgres.OnCommit(j, func(ctx context.Context, tx pgx.Tx) error {
				// Its text goes over the wire for every job, not once for each connection: TestLostReplies looks for it.
				_, err := tx.Exec(ctx, "insert into mark (key) values ($1) -- "+j.Key().Text, j.Key().Text)
				return err
			})
			return answer, nil
		}})
	return &reg
}

// ask makes the request with nothing but net/http.
func (r *rig) ask(ctx context.Context, a *job.Attempt, d doc) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": a.Model(), "messages": []map[string]string{{"role": "user", "content": "Read " + d.Doc}},
		"metadata": map[string]string{"job_key": a.Key().Text}})
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.models.URL()+modelserver.ChatCompletions, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set("Content-Type", "application/json")
	res, err := a.HTTP().Do(q)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider answers %s", res.Status)
	}
	var c struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&c); err != nil {
		return "", err
	}
	return c.Choices[0].Message.Content, nil
}

// publish sends a document each.
func (r *rig) publish(docs ...string) {
	r.Helper()
	ms := make([]broker.Message, len(docs))
	for i, d := range docs {
		ms[i] = message(doc{Tenant: "acme", Doc: d, Text: "Text of " + d})
	}
	r.send(ms...)
}

func message(d doc) broker.Message {
	body, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return broker.Message{Body: body, Attributes: map[string]string{consumer.Attribute: action}}
}

func (r *rig) send(ms ...broker.Message) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := r.pub.Publish(ctx, ms...); err != nil {
		r.Fatalf("publish: %v", err)
	}
}

// eventually waits until ok; what says what for.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.Fatalf("never: %s\navoided %v, deliveries %v", what, r.avoided, r.settled)
		}
	}
}

func (r *rig) awaitDone(n int) {
	r.Helper()
	r.eventually(fmt.Sprintf("%d jobs done", n), func() bool { return r.count("select count(*) from paidonce.job where state = 'done'") == n })
}

func (r *rig) awaitBilled(n int) {
	r.Helper()
	r.eventually(fmt.Sprintf("%d lines on the bill", n), func() bool { return len(r.models.Bill()) >= n })
}
