package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
)

// The program's secrets that user code, panics, reconcilers and messages bring up are neither stored, nor logged, nor put on
// a dead letter.
func TestScrub(t *testing.T) {
	const secret = "pw-planted"
	bubble(t, memory.Options{}, func(r *rig) {
		var log bytes.Buffer
		r.before = func(_ context.Context, _ *job.Run, in ask) error {
			switch in.Doc {
			case "fails":
				return job.Failf("dial postgres://u:%s@h", secret)
			case "panics":
				panic("with " + secret)
			}
			return nil
		}
		r.prov.script = func(doc string, n int) (time.Duration, error) {
			if doc == "asked" {
				return firstIsLost(doc, n)
			}
			return time.Second, nil
		}
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) {
			return "", job.CannotTell, errors.New("401 for " + secret)
		}
		r.send("fails", "panics", "asked")
		m := broker.Message{Body: []byte(secret), Attributes: map[string]string{consumer.Attribute: "ask"}}
		if err := r.q.Publish(r.Context(), m); err != nil {
			r.Fatal(err)
		}
		a := r.start("a", func(c *consumer.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Scrub = func(s string) string { return strings.ReplaceAll(s, secret, "(hidden)") }
		})
		time.Sleep(time.Minute)
		r.end(a)
		for doc, want := range map[string]string{"fails": "dial postgres://u:(hidden)@h", "panics": "PO316 the handler panicked: with (hidden)"} {
			j := r.job(doc)
			if j.Error == nil || j.Error.Text != want {
				t.Errorf("%s has the error %+v, want %s", doc, j.Error, want)
			}
			fmt.Fprintf(&log, "%+v", j)
		}
		for _, h := range r.job("asked").History {
			log.WriteString(h.Reason)
		}
		kept := log.String()
		if strings.Contains(kept, secret) || !strings.Contains(kept, "401 for (hidden)") || !strings.Contains(kept, `have \"(hidden)\"`) {
			t.Errorf("kept or logged:\n%s", kept)
		}
		r.queue(memory.Depth{}, `PO403 input of ask: want a JSON object, have "(hidden)"`)
	})
}
