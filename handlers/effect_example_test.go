package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// What follows up to Example_effect is quoted by docs/steps.md.

type SMS struct{ Tenant, Order, Phone, Text string }

func (s SMS) JobKey() job.Key { return job.K(s.Tenant, "sms", s.Order) } // one for each order, whoever asks

func smsStep(gateway string) job.Step[SMS, string] {
	return job.Step[SMS, string]{
		Name: "sms", Timeout: 30 * time.Second,
		Do: func(ctx context.Context, a *job.Attempt, s SMS) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/send?ref="+a.ID()+"&to="+s.Phone, nil)
			if err != nil {
				return "", job.Fail(err)
			}
			resp, err := a.Effect().Do(req) // marks before the first byte, and sends once
			if err != nil {
				return "", err // the mark knows whether anything was sent
			}
			defer resp.Body.Close()
			switch id, err := io.ReadAll(resp.Body); {
			case resp.StatusCode == http.StatusOK && err == nil:
				a.Object(string(id))
				return string(id), nil
			case resp.StatusCode < 500 && err == nil:
				return "", job.Fail(errors.New(resp.Status)) // certainly not sent; job.Retry: try again
			}
			return "", job.Unsure(errors.New(resp.Status)) // may be sent: held, or looked up below
		},
		Reconcile: func(ctx context.Context, o job.Open, _ SMS) (string, job.Finding, error) {
			resp, err := http.Get(gateway + "/sent?ref=" + o.ClientRequestID)
			if err != nil {
				return "", job.CannotTell, err
			}
			defer resp.Body.Close()
			switch id, err := io.ReadAll(resp.Body); {
			case resp.StatusCode == http.StatusOK && err == nil:
				return string(id), job.Happened, nil
			case resp.StatusCode == http.StatusNotFound:
				return "", job.Absent, nil // this gateway keeps all that it sent, at once
			}
			return "", job.CannotTell, err
		},
	}
}

// A step of one's own: a text message by somebody's gateway, which loses its reply to the first. The job is done, the step
// is looked up, and the message is sent once.
func Example_effect() {
	gateway := newGateway()
	defer gateway.Close()
	sms := smsStep(gateway.URL)

	var reg job.Registry
	job.RegisterStep(&reg, sms)
	job.Register(&reg, job.Def[order, string]{
		Name: "order.confirm", Steps: job.Steps(sms),
		Handle: func(_ context.Context, j *job.Run, o order) (string, error) {
			return "confirmed", sms.After(j, SMS{o.Tenant, o.ID, "+15550100", "Your order is confirmed."})
		},
	})
	led, q := memory.New(), brokermemory.New(brokermemory.Options{})
	message := broker.Message{Body: []byte(`{"job":"order.confirm","input":{"Tenant":"acme","ID":"77"}}`)}
	if err := q.Publish(context.Background(), message, message); err != nil {
		fmt.Println(err)
	}
	work(&reg, led, q, func() bool {
		j, err := led.Job(context.Background(), ledger.Key{Tenant: "acme", Text: "acme:sms:77"})
		return err == nil && j.State == ledger.Done
	})
	for _, key := range []string{"acme:order.confirm:77", "acme:sms:77"} {
		j, err := led.Job(context.Background(), ledger.Key{Tenant: "acme", Text: key})
		fmt.Println(key, j.State, string(j.Result.Body), err)
	}
	fmt.Println("messages sent:", gateway.sent())
	// Output:
	// acme:order.confirm:77 done "confirmed" <nil>
	// acme:sms:77 done "SM1" <nil>
	// messages sent: 1
}

type order struct{ Tenant, ID string }

func (o order) JobKey() job.Key { return job.K(o.Tenant, "order.confirm", o.ID) }

// work runs a worker until done says so.
func work(reg *job.Registry, led ledger.Store, q *brokermemory.Queue, done func() bool) {
	c, err := consumer.New(consumer.Config{Source: q.Source(), Store: led, Handlers: reg, Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			fmt.Println(err)
		}
	})
	for !done() && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	running.Wait()
}

// gateway sends text messages, and says nothing to the first.
type gateway struct {
	*httptest.Server
	mu  sync.Mutex
	ids map[string]string // by the reference
}

func newGateway() *gateway {
	g := &gateway{ids: map[string]string{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		ref := r.URL.Query().Get("ref")
		switch id, there := g.ids[ref]; {
		case r.URL.Path == "/send":
			g.ids[ref] = fmt.Sprintf("SM%d", len(g.ids)+1)
			panic(http.ErrAbortHandler)
		case there:
			io.WriteString(w, id)
		default:
			http.NotFound(w, r)
		}
	}))
	return g
}

func (g *gateway) sent() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ids)
}
