package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

// losing loses the lease of one document's job just before its run ends.
type losing struct {
	ledger.Store
	key ledger.Key
}

func (l losing) Release(ctx context.Context, lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	if lease.Key == l.key {
		return ledger.Released{}, ledger.ErrLost
	}
	return l.Store.Release(ctx, lease, o)
}

// placeless has no dead-letter queue for messages that say so.
type placeless struct{ broker.Source }

func (p placeless) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	if bytes.Contains(d.Body, []byte("no place")) {
		return broker.ErrUnroutable
	}
	return p.Source.DeadLetter(ctx, d, reason)
}

// Whatever quotes a body or user code in the log went through Redact; the ledger and the dead letters
// have it whole.
func TestLogIsRedacted(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var log bytes.Buffer
		r.redact = func(p job.Part, b []byte) []byte {
			if p != job.PartText {
				t.Errorf("asked about a %s", p)
			}
			return bytes.ReplaceAll(b, []byte("secret"), []byte("***"))
		}
		r.before = func(_ context.Context, j *job.Run, in ask) error {
			switch in.Doc {
			case "fails", "lost":
				return job.Failf("the secret is out")
			case "panics":
				panic("a secret")
			case "commit":
				memledger.OnCommit(j, func(context.Context) error { panic("secret work") })
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
			return "", job.CannotTell, errors.New("no secret answer")
		}
		r.send("fails", "lost", "panics", "commit", "asked")
		for _, body := range []string{"secret", "secret, no place", "secret, a pointer"} {
			m := broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: "ask"}}
			if strings.HasSuffix(body, "pointer") { // whose handler is not known by then
				m.Attributes["SQSLargePayloadSize"] = "1"
			}
			if err := r.q.Publish(r.Context(), m); err != nil {
				r.Fatal(err)
			}
		}
		a := r.start("a", func(c *consumer.Config) {
			c.Log, c.Store, c.Source = slog.New(slog.NewTextHandler(&log, nil)), losing{c.Store, key("lost")}, placeless{c.Source}
		})
		time.Sleep(time.Minute)
		r.end(a)
		for _, want := range []string{
			`msg="run ended without a result" worker=a message_id=m1 job=ask key=acme:ask:fails:v0 run=1 fence=1 state=failed class=permanent error="the *** is out"`,
			`the delivery is given back" worker=a message_id=m2 job=ask key=acme:ask:lost:v0 run=1 fence=1 error="the *** is out"`,
			`msg="handler panicked" worker=a message_id=m3 job=ask key=acme:ask:panics:v0 run=1 fence=1 panic="a ***"`,
			`class=panic error="PO316 the handler panicked: a ***"`,
			`msg="processing panicked" worker=a message_id=m4 job=ask key=acme:ask:commit:v0 run=1 fence=1 panic="*** work"`,
			`msg="provider gave no evidence" worker=a key=acme:ask:asked:v0 call=generate error="no *** answer"`,
			`msg="message dead-lettered" worker=a message_id=m6 job=ask reason="PO403 input of ask: want a JSON object, have \"***\""`,
			`the message comes back for ever" worker=a message_id=m7 job=ask reason="PO403 input of ask: want a JSON object, have \"***, no place\""`,
			`msg="message dead-lettered" worker=a message_id=m8 job=unknown reason="PO411 body is marked as a pointer to S3 and cannot be read as one; it has 17 bytes"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %s", want)
			}
		}
		if strings.Contains(log.String(), "secret") || t.Failed() {
			t.Errorf("the log is\n%s", &log)
		}
		if e := r.job("fails").Error; e == nil || *e != (ledger.JobError{Class: "permanent", Text: "the secret is out"}) {
			t.Errorf("the ledger has the error %+v, want it whole", e)
		}
		r.queue(memory.Depth{Delayed: 2}, `PO403 input of ask: want a JSON object, have "secret"`, "PO411")
	})
}
