// Package demo tells the story of paidonce on one screen: real consumers run the real
// job ticket.summary with the vendor's SDK against a stand-in model server, in one
// process and with nothing installed. Its oracle is the model server's bill.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/paidonce/paidonce/broker"
	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// Windows are short, so that the story fits into a coffee break; their relations are those
// of real ones.
const (
	lease      = time.Second
	visibility = 2 * time.Second
	timeout    = 5 * time.Second // of the route, the settle window and the hold
	latency    = 300 * time.Millisecond
	patience   = 20 * time.Second // for anything that should happen
)

// The three tickets of the story.
const (
	asked3x = "48213"
	killed  = "48214"
	lost    = "48215"
)

// Run tells the story to w. Its error says that it did not end as it should: a key was
// not paid exactly once, or has no result.
func Run(ctx context.Context, w io.Writer) error {
	s, err := newStage(w)
	if err != nil {
		return err
	}
	defer s.close()
	begun := time.Now()
	s.say("paidonce demo: job ticket.summary, through the OpenAI SDK with its own retries on.")
	s.say("A stand-in model server, a queue, and a ledger in a temporary file, all in this process; nothing leaves it.\n")
	for _, scene := range []func(context.Context) error{s.duplicate, s.kill, s.lostAnswer, s.bill} {
		sctx, cancel := context.WithTimeout(ctx, patience)
		err := scene(sctx)
		cancel()
		if err != nil {
			return fmt.Errorf("PO520 the demo did not go as it should: %w", err)
		}
	}
	s.say("\nIt took %.1f s. Next: worker run, worker submit (see the README).", time.Since(begun).Seconds())
	return nil
}

// stage is what the story is played on.
type stage struct {
	out     io.Writer
	models  *modelserver.Server
	listing *listing
	queue   *brokermemory.Queue
	dir     string // of the ledgers' files
	ledger  *sqlite.Ledger
	count   *counter
	actors  []*actor
}

// newLedger makes a ledger that remembers nothing yet, in a file of that name.
func newLedger(dir, name string) (*sqlite.Ledger, error) {
	path := filepath.Join(dir, name)
	if err := sqlite.Migrate(context.Background(), path); err != nil {
		return nil, err
	}
	return sqlite.Open(context.Background(), path)
}

func newStage(w io.Writer) (s *stage, err error) {
	s = &stage{out: w, queue: brokermemory.New(brokermemory.Options{Visibility: visibility}), count: newCounter()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "paidonce-demo"); err != nil {
		return s, err
	}
	if s.ledger, err = newLedger(s.dir, "paidonce.db"); err != nil {
		return s, err
	}
	if s.models, err = modelserver.Start(modelserver.Options{Latency: latency}); err != nil {
		return s, err
	}
	s.listing, err = startListing(s.models)
	return s, err
}

// close ends the actors and removes what the story needed: stand-ins on loopback and a
// temporary file have nothing to lose.
func (s *stage) close() {
	for _, a := range s.actors {
		a.leave()
	}
	if s.listing != nil {
		_ = s.listing.close()
	}
	if s.models != nil {
		_ = s.models.Close()
	}
	if s.ledger != nil {
		s.ledger.Close()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *stage) say(format string, a ...any) { fmt.Fprintf(s.out, format+"\n", a...) }

// send puts the ticket on the queue so many times.
func (s *stage) send(ctx context.Context, ticket string, times int) error {
	body := fmt.Sprintf(`{"tenant":"acme","ticket":%q,"revision":1,"thread":"Customer: the invoice of ticket %s was charged twice, and nobody answers."}`, ticket, ticket)
	for range times {
		s.count.sent(key(ticket))
		if err := s.queue.Publish(ctx, broker.Message{Body: []byte(body), Attributes: map[string]string{"job": summarize.Name}}); err != nil {
			return err
		}
	}
	return nil
}

func key(ticket string) string {
	return summarize.Ticket{Tenant: "acme", Ticket: ticket, Revision: 1}.JobKey().String()
}

// actor is a worker process.
type actor struct {
	consumer *consumer.Consumer
	plug     *plug
	stop     context.CancelFunc
	ended    chan struct{}
}

// enter starts a worker of that name.
func (s *stage) enter(name string) (*actor, error) {
	var reg job.Registry
	job.Register(&reg, summarize.New(provider.Settings{
		Routes: []provider.Route{{Name: "primary", Provider: provider.OpenAI, Model: "gpt-5-mini", Timeout: timeout}},
		OpenAI: provider.Account{BaseURL: s.listing.url + "/v1/", APIKey: "not needed here"},
	}, summarize.Tell{}))
	a := &actor{plug: &plug{}, ended: make(chan struct{})}
	c, err := consumer.New(consumer.Config{
		Source: deadSource{s.queue.Source(), a.plug}, Store: deadStore{s.ledger, a.plug}, Handlers: &reg, Name: name,
		Workers: 4, Lease: lease, Drain: time.Second, SettleWindow: timeout, Hold: timeout,
		Retry: consumer.Backoff{First: 200 * time.Millisecond, Ceil: time.Second},
		Trace: s.count.trace(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.consumer, a.stop = c, cancel
	go func() {
		defer close(a.ended)
		_ = c.Run(ctx) // an actor that cannot go on shows in the story
	}()
	s.actors = append(s.actors, a)
	return a, nil
}

// leave ends the worker, in order or after its death, and waits.
func (a *actor) leave() {
	a.stop()
	a.consumer.Hurry()
	<-a.ended
}

// until waits for the job to satisfy ok.
func (s *stage) until(ctx context.Context, ticket string, ok func(ledger.Job) bool) (ledger.Job, error) {
	k := ledger.Key{Tenant: "acme", Text: key(ticket)}
	for {
		j, err := s.ledger.Job(ctx, k)
		if err == nil && ok(j) {
			return j, nil
		}
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return j, err
		}
		select {
		case <-ctx.Done():
			return j, fmt.Errorf("waiting for job %s, which is %q: %w", k, j.State, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func done(j ledger.Job) bool { return j.State == ledger.Done }
