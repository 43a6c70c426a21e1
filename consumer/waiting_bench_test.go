package consumer_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// elsewhere is a ledger that keeps its rows where they are not measured: it grants what it is asked for.
type elsewhere struct {
	ledger.Store
	jobs atomic.Int64
}

func (s *elsewhere) Join(_ context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	return ledger.WorkerID{ID: w.ID, Epoch: 1}, nil
}

func (s *elsewhere) Renew(_ context.Context, _ ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	return ledger.Renewed{Deadline: time.Now().Add(ttl)}, nil
}

func (s *elsewhere) Leave(context.Context, ledger.WorkerID) error { return nil }

func (s *elsewhere) Flagged(context.Context, ledger.WorkerID) ([]ledger.Key, error) { return nil, nil }

func (s *elsewhere) Sweep(context.Context, int) (ledger.Swept, error) { return ledger.Swept{}, nil }

func (s *elsewhere) Due(context.Context, int, time.Duration, ...string) ([]ledger.Stored, error) {
	return nil, nil
}

func (s *elsewhere) Adopt(context.Context, ledger.Adoption) ([]ledger.Adopted, error) {
	return nil, nil
}

func (s *elsewhere) Claim(_ context.Context, r ledger.Request) (ledger.Claimed, error) {
	return ledger.Claimed{Verdict: ledger.Run, Run: 1, Generation: 1, Carrier: r.Carrier,
		Lease: ledger.Lease{Key: r.Key, Job: s.jobs.Add(1), Fence: 1, Deadline: time.Now().Add(r.MaxRun)}}, nil
}

func (s *elsewhere) Send(context.Context, ledger.Lease, ledger.Attempt) error { return nil }

func (s *elsewhere) Settle(context.Context, ledger.AttemptID, ledger.Evidence) (ledger.Settled, error) {
	return ledger.Settled{Job: ledger.Running}, nil
}

func (s *elsewhere) Complete(context.Context, ledger.Lease, ledger.Result) error { return nil }

// BenchmarkWaiting is what a call takes that waits for its model: memory that is live while it does, that was allocated on the way there,
// and of its stacks. Messages have 1 KB and one attribute beside the job's name; they are made on the way, with all that a source says of them, and
// counted, but for what an adapter keeps of its own. Read it at -benchtime 2000x or more.
func BenchmarkWaiting(b *testing.B) {
	var under atomic.Int64
	all, answered := make(chan struct{}), make(chan struct{})
	call := job.Call[paper, string]{Name: "read", Routes: []job.Route[paper, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, in paper) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			if under.Add(1) == int64(b.N) {
				close(all)
			}
			<-answered
			return "ok", nil
		}}}}
	var reg job.Registry
	job.Register(&reg, job.Def[paper, string]{Name: "paper", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, in paper) (string, error) { return call.Run(ctx, j, in) }})
	s := &belt{bodies: papered, left: b.N, all: int64(b.N), done: make(chan struct{})}
	c, err := consumer.New(consumer.Config{Source: s, Store: &elsewhere{}, Handlers: &reg, Workers: b.N, Lease: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	before := settledMemory()
	ended, ctx := make(chan error, 1), b.Context()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- c.Run(ctx) }()
	<-all
	b.StopTimer()
	after := settledMemory()
	each := func(name string, was, is uint64) {
		b.ReportMetric((float64(is)-float64(was))/float64(b.N), name+"/call")
	}
	each("live-B", before.HeapAlloc, after.HeapAlloc)
	each("live-objects", before.HeapObjects, after.HeapObjects)
	each("stack-B", before.StackInuse, after.StackInuse)
	each("allocated-B", before.TotalAlloc, after.TotalAlloc)
	each("allocated-objects", before.Mallocs, after.Mallocs)
	b.ReportMetric(0, "ns/op") // no time is of interest
	close(answered)
	<-s.done
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// settledMemory is what is in use after two collections.
func settledMemory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
