package consumer_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// The user's work in the commit panics: the job is given back, not left to its run
// deadline, and ends as poison.
func TestPanicOutsideTheHandler(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.after = func(_ context.Context, j *job.Run, _ ask) error {
			memledger.OnCommit(j, func(context.Context) error { panic("boom") })
			return nil
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(10 * time.Minute)
		r.end(a)
		r.want("1", want{state: ledger.Failed, runs: 3, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "poison"})
		r.queue(memory.Depth{})
	})
}

// Whatever a trace is told, from a delivery or from a loop, it panics: all goes on as if it had
// not been told, and each of its functions is named in the log once.
func TestPanicOfATrace(t *testing.T) {
	bubble(t, memory.Options{Visibility: 30 * time.Second}, func(r *rig) {
		r.prov.script = func(doc string, n int) (time.Duration, error) {
			if doc == "lost" {
				return firstIsLost(doc, n)
			}
			return time.Minute, nil
		}
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) {
			return "answer to lost", job.Happened, nil
		}
		r.wasting("twice")
		var trace consumer.Trace
		fields := reflect.ValueOf(&trace).Elem()
		for _, f := range fields.Fields() {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("boom") }))
		}
		var log bytes.Buffer
		r.send("lost", "twice")
		r.askFor("1", "c1")
		r.publish(ask{Tenant: "poor", Doc: "1"})
		r.call.Routes[0].Reserve = 2
		a := r.start("a", r.answering, func(c *consumer.Config) {
			c.Trace, c.Log = trace, slog.New(slog.NewTextHandler(&log, nil))
			c.Budgets.Tenants = map[string]ledger.Nano{"poor": 1}
		})
		time.Sleep(10 * time.Minute)
		r.send("1")
		time.Sleep(time.Minute)
		r.end(a)
		r.answered(`c1 done "answer to 1"`)
		r.want("1", done1)
		r.want("lost", want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.want("twice", want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received, ledger.Received}})
		r.queue(memory.Depth{})
		for f := range fields.Fields() {
			line := `msg="trace panicked; said once" worker=a function=` + f.Name + " panic=boom stack="
			if n := strings.Count(log.String(), line); n != 1 {
				r.Errorf("the log says %d times that %s panicked:\n%s", n, f.Name, &log)
			}
		}
	})
}

// deafSource extends nothing while its broker is out of reach.
type deafSource struct {
	broker.Source
	asked *int
}

func (s deafSource) Extend(context.Context, broker.Delivery, time.Duration) (time.Time, error) {
	if *s.asked++; *s.asked > 10000 {
		panic("the keeper asks without end")
	}
	return time.Time{}, broker.ErrUnavailable
}

// A broker that is out of reach until long after a deadline is asked at a steady pace.
func TestKeeperDoesNotSpinPastADeadline(t *testing.T) {
	bubble(t, memory.Options{Visibility: time.Minute}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 110 * time.Second, nil }
		asked := 0
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Source = deafSource{c.Source, &asked} })
		time.Sleep(5 * time.Minute)
		r.end(a)
		r.want("1", done1)
		if asked > 120 {
			t.Errorf("asked %d times in 110 s", asked)
		}
	})
}
