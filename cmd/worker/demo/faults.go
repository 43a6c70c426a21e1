package demo

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// plug is what connects a worker to the world. Once it is pulled, the worker is as good
// as dead: nothing that it does reaches the ledger or the broker.
type plug struct {
	pulled atomic.Bool
	mu     sync.Mutex
	died   chan struct{} // not nil: pull when the next answer is on record
}

var errDead = errors.New("the worker is dead")

// pullAfterAnswer pulls the plug as soon as an answer is captured, and then closes the
// channel.
func (p *plug) pullAfterAnswer() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.died = make(chan struct{})
	return p.died
}

func (p *plug) captured() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.died != nil && p.pulled.CompareAndSwap(false, true) {
		close(p.died)
	}
}

// through does f if the plug is in.
func through[T any](p *plug, f func() (T, error)) (T, error) {
	if p.pulled.Load() {
		var none T
		return none, errDead
	}
	return f()
}

// deadStore is the ledger as seen through a plug. Verbs that a dead worker would not
// come to use are left alone.
type deadStore struct {
	ledger.Store
	plug *plug
}

func (d deadStore) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	return through(d.plug, func() (ledger.Claimed, error) { return d.Store.Claim(ctx, r) })
}

func (d deadStore) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	s, err := d.Store.Settle(ctx, id, e)
	if err == nil && e.State == ledger.Received {
		d.plug.captured()
	}
	return s, err
}

func (d deadStore) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	_, err := through(d.plug, func() (any, error) { return nil, d.Store.Complete(ctx, l, r) })
	return err
}

func (d deadStore) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return through(d.plug, func() (ledger.Released, error) { return d.Store.Release(ctx, l, o) })
}

func (d deadStore) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	return through(d.plug, func() (ledger.WorkerID, error) { return d.Store.Join(ctx, w) })
}

func (d deadStore) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	return through(d.plug, func() (ledger.Renewed, error) { return d.Store.Renew(ctx, id, ttl) })
}

func (d deadStore) Leave(ctx context.Context, id ledger.WorkerID) error {
	_, err := through(d.plug, func() (any, error) { return nil, d.Store.Leave(ctx, id) })
	return err
}

func (d deadStore) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	return through(d.plug, func() (ledger.Swept, error) { return d.Store.Sweep(ctx, n) })
}

// deadSource is the broker as seen through a plug.
type deadSource struct {
	broker.Source
	plug *plug
}

func (d deadSource) Ack(ctx context.Context, m broker.Delivery) error {
	_, err := through(d.plug, func() (any, error) { return nil, d.Source.Ack(ctx, m) })
	return err
}

func (d deadSource) Nack(ctx context.Context, m broker.Delivery, delay time.Duration) error {
	_, err := through(d.plug, func() (any, error) { return nil, d.Source.Nack(ctx, m, delay) })
	return err
}

func (d deadSource) Extend(ctx context.Context, m broker.Delivery, by time.Duration) (time.Time, error) {
	return through(d.plug, func() (time.Time, error) { return d.Source.Extend(ctx, m, by) })
}

// listing is the model server with a store of past answers that may lag, as a real one's.
type listing struct {
	url     string
	server  *http.Server
	lagging atomic.Bool
}

func startListing(models *modelserver.Server) (*listing, error) {
	conn, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &listing{url: "http://" + conn.Addr().String()}
	serve := models.Handler()
	l.server = &http.Server{ReadHeaderTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && l.lagging.Load() {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []any{}, "has_more": false}) // the asker may have left
			return
		}
		serve.ServeHTTP(w, r)
	})}
	go func() { _ = l.server.Serve(conn) }() // ends with close
	return l, nil
}

func (l *listing) lag(on bool) { l.lagging.Store(on) }

func (l *listing) close() error { return l.server.Close() }
