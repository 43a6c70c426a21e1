package submit_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/submit"
)

// ask is the message of the tests, and answer the result.
type (
	ask    struct{ Tenant, Doc, Text string }
	answer struct{ Text string }
)

func (a ask) JobKey() job.Key { return job.K(a.Tenant, "ask", a.Doc) }

// shop is a server that submits, with a worker behind it.
type shop struct {
	*testing.T
	client submit.Client[ask, answer]
	queue  *brokermemory.Queue
	mu     sync.Mutex
	bill   map[string]int
	does   func(ctx context.Context, in ask) error // what the provider does after it has billed
}

// open runs a test in simulated time. The worker sweeps hourly, so what it is to begin at once must come by a message.
func open(t *testing.T, f func(*shop)) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{T: t, queue: brokermemory.New(brokermemory.Options{}), bill: map[string]int{}}
		store := memory.New()
		s.client = submit.Client[ask, answer]{Job: "ask", Ledger: store, Broker: s.queue, Who: "shop"}
		call := job.Call[ask, answer]{Name: "generate", Routes: []job.Route[ask, answer]{{Name: "primary", Provider: "fake", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, in ask) (answer, error) {
				if err := a.Sent(ctx); err != nil {
					return answer{}, err
				}
				s.mu.Lock()
				s.bill[in.Doc]++
				s.mu.Unlock()
				time.Sleep(10 * time.Second)
				return answer{"about " + in.Doc}, s.does(ctx, in)
			}}}}
		s.does = func(context.Context, ask) error { return nil }
		var reg job.Registry
		job.Register(&reg, job.Def[ask, answer]{Name: "ask", Uses: job.Uses(call),
			Handle: func(ctx context.Context, j *job.Run, in ask) (answer, error) { return call.Run(ctx, j, in) }})
		c, err := consumer.New(consumer.Config{Source: s.queue.Source(), Store: store, Handlers: &reg, Name: "worker", Tick: time.Hour,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Minute) // the first sweep is over
		f(s)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// billed counts what the provider made, of one document or of all ("").
func (s *shop) billed(doc string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, made := range s.bill {
		if doc == "" || d == doc {
			n += made
		}
	}
	return n
}

func (s *shop) submit(doc string) submit.Ticket {
	s.Helper()
	t, err := s.client.Submit(s.Context(), ask{"acme", doc, "text"})
	if err != nil {
		s.Fatal(err)
	}
	return t
}

// A double click, a client that asks again after a slow answer, and two servers: one job, one bill, and all who wait get the result.
func TestSubmitOnce(t *testing.T) {
	open(t, func(s *shop) {
		began := time.Now()
		var made int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				ticket := s.submit("1")
				mu.Lock()
				if ticket.New {
					made++
				}
				mu.Unlock()
				got, err := s.client.Wait(s.Context(), ticket.Key)
				if err != nil || got.State != ledger.Done || got.Result.Text != "about 1" {
					s.Errorf("%+v, %v", got, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 20*time.Second {
			s.Errorf("it took %s: the message did not reach the worker", took)
		}
		again := s.submit("1")
		if again.New || again.State != ledger.Done || again.Sent {
			s.Errorf("submitted again: %+v", again)
		}
		got, err := s.client.Get(s.Context(), again.Key)
		if err != nil || got.Result.Text != "about 1" || made != 1 || s.billed("1") != 1 {
			s.Errorf("%+v, %v; made %d times, billed %d times", got, err, made, s.billed("1"))
		}
	})
}

// Running, held and failed are told apart, and a job that nobody submitted is none of them.
func TestWaitTellsStatesApart(t *testing.T) {
	open(t, func(s *shop) {
		s.does = func(_ context.Context, in ask) error {
			if in.Doc == "failed" {
				return job.Fail(errors.New("never"))
			}
			return errors.New("connection reset")
		}
		held, failed := s.submit("held"), s.submit("failed")
		time.Sleep(time.Second)
		got, err := s.client.Get(s.Context(), held.Key)
		if err != nil || got.State != ledger.Running {
			s.Errorf("%+v, %v", got, err)
		}
		for _, c := range []struct {
			submit.Ticket
			state ledger.State
			class string
		}{{held, ledger.Unknown, "held"}, {failed, ledger.Failed, "permanent"}} {
			got, err := s.client.Wait(s.Context(), c.Key)
			if err != nil || got.State != c.state || got.Error == nil || got.Error.Class != c.class {
				s.Errorf("%s: %+v, %v, want %s by %s", c.Key, got, err, c.state, c.class)
			}
		}
		k := ask{Tenant: "acme", Doc: "nobody"}.JobKey().Ledger()
		if _, err := s.client.Get(s.Context(), k); !errors.Is(err, ledger.ErrNotFound) {
			s.Errorf("%v, want ErrNotFound", err)
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		if _, err := s.client.Wait(ctx, k); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not on record yet") {
			s.Errorf("%v, want the end of the wait", err)
		}
	})
}

// sealing is a ledger that stores inputs in another form.
type sealing struct{ submit.Ledger }

func (sealing) Seal(s ledger.Submission) ledger.Submission {
	s.Input = []byte("sealed")
	return s
}

// What is put on record in a program's own transaction is in the ledger's form.
func TestPrepareSeals(t *testing.T) {
	c := submit.Client[ask, answer]{Job: "ask", Ledger: sealing{memory.New()}}
	s, err := c.Prepare(t.Context(), ask{"acme", "1", "card 4111"})
	if err != nil || string(s.Input) != "sealed" || s.Key.Text != "acme:ask:1" {
		t.Errorf("%+v, %v", s, err)
	}
}

// What the broker does not take is on record, and the next sweep runs it.
func TestSubmitWithoutABroker(t *testing.T) {
	open(t, func(s *shop) {
		s.client.Broker = nil
		ticket := s.submit("1")
		if !ticket.New || ticket.Sent {
			s.Errorf("%+v", ticket)
		}
		time.Sleep(3 * time.Hour)
		if got, err := s.client.Get(s.Context(), ticket.Key); err != nil || got.State != ledger.Done || s.billed("1") != 1 {
			s.Errorf("%+v, %v, billed %d times", got, err, s.billed("1"))
		}
	})
}

func TestSubmitRefuses(t *testing.T) {
	open(t, func(s *shop) {
		s.submit("1")
		if _, err := s.client.Submit(s.Context(), ask{"acme", "1", "another text"}); !errors.Is(err, submit.ErrOther) {
			s.Errorf("another input: %v", err)
		}
		if _, err := s.client.Submit(s.Context(), ask{"", "2", ""}); err == nil || !strings.Contains(err.Error(), "PO404") {
			s.Errorf("no tenant: %v", err)
		}
		if _, err := s.client.Submit(s.Context(), ask{"acme", "3", strings.Repeat("x", ledger.InlineInput)}); !errors.Is(err, ledger.ErrRequest) {
			s.Errorf("a large input: %v", err)
		}
		other := submit.Client[ask, answer]{Job: "other", Ledger: s.client.Ledger}
		if _, err := other.Get(s.Context(), ask{Tenant: "acme", Doc: "1"}.JobKey().Ledger()); !errors.Is(err, submit.ErrOther) {
			s.Errorf("another job's result: %v", err)
		}
		time.Sleep(time.Minute)
		if s.billed("1") != 1 || s.billed("") != 1 || len(s.queue.DeadLetters()) != 0 {
			s.Errorf("billed %v, dead letters %v", s.billed(""), s.queue.DeadLetters())
		}
	})
}

// Case 62: a call got no answer, and the job is submitted again. It is no blank start: the job that is there is kept, and waits for evidence.
func TestSubmitAgainWhileACallIsOpen(t *testing.T) {
	open(t, func(s *shop) {
		s.does = func(context.Context, ask) error { return errors.New("connection reset") }
		first := s.submit("1")
		time.Sleep(time.Minute)
		for range 3 {
			if again := s.submit("1"); again.New || again.State != ledger.Unknown || again.Key != first.Key {
				s.Errorf("submitted again: %+v", again)
			}
			time.Sleep(20 * time.Minute)
		}
		got, err := s.client.Get(s.Context(), first.Key)
		if err != nil || got.State != ledger.Unknown || s.billed("1") != 1 {
			s.Errorf("%+v, %v, billed %d times", got, err, s.billed("1"))
		}
	})
}
