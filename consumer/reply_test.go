package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// answering makes workers answer those who ask, by the test's queue.
func (r *rig) answering(c *consumer.Config) { c.Replies = r.q }

// askFor publishes a message that wants its answer under a correlation id.
func (r *rig) askFor(doc, correlation string) {
	r.Helper()
	r.askWith(`{"Tenant":"acme","Doc":"`+doc+`"}`, "ask", correlation)
}

func (r *rig) askWith(body, name, correlation string) {
	r.Helper()
	r.q.OpenReplies("answers")
	m := broker.Message{Body: []byte(body), Attributes: map[string]string{
		consumer.Attribute: name, broker.ReplyTo: "answers", broker.CorrelationID: correlation}}
	if err := r.q.Publish(r.Context(), m); err != nil {
		r.Fatal(err)
	}
}

// answered checks the answers since the last time, in any order, each as "correlation state result-or-class".
func (r *rig) answered(want ...string) {
	r.Helper()
	var got []string
	for _, m := range r.q.Replies("answers") {
		var a consumer.Reply
		if err := json.Unmarshal(m.Body, &a); err != nil {
			r.Fatalf("the answer %s: %v", m.Body, err)
		}
		if a.State != m.Attributes["state"] || a.Job != m.Attributes[consumer.Attribute] {
			r.Errorf("the answer %s has the attributes %v", m.Body, m.Attributes)
		}
		line := m.Attributes[broker.CorrelationID] + " " + a.State
		if a.Error != nil {
			line += " " + a.Error.Class
		}
		if len(a.Result) > 0 && string(a.Result) != "null" {
			line += " " + string(a.Result)
		}
		got = append(got, line)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("answers\n\t%s, want\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// Whoever asks is told the result when it is there, and so is whoever asks again, of what was paid for once.
func TestAnswersReachWhoAsks(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		a := r.start("a", r.answering, func(c *consumer.Config) { c.AckBusy = true })
		r.askFor("1", "c1")
		time.Sleep(10 * time.Second)
		r.askFor("1", "c2") // while it runs: absorbed without an answer it would wait for ever
		r.send("1")
		time.Sleep(10 * time.Minute)
		r.answered(`c1 done "answer to 1"`, `c2 done "answer to 1"`)
		r.askFor("1", "c3")
		time.Sleep(time.Minute)
		r.answered(`c3 done "answer to 1"`)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// A message that was wrapped has its address inside, and gives it whatever becomes of it.
func TestWrappedAddresses(t *testing.T) {
	wrapped := func(name, input, correlation string) broker.Message {
		attr := func(name, value string) string { return fmt.Sprintf(`%q:{"Type":"String","Value":%q}`, name, value) }
		return broker.Message{Body: []byte(notified(input, "{"+strings.Join([]string{
			attr(consumer.Attribute, name), attr(broker.ReplyTo, "answers"), attr(broker.CorrelationID, correlation)}, ",")+"}"))}
	}
	bubble(t, memory.Options{}, func(r *rig) {
		r.q.OpenReplies("answers")
		if err := r.q.Publish(t.Context(), wrapped("ask", input, "done"), wrapped("ask", "{}", "no key"), wrapped("who", input, "no handler")); err != nil {
			t.Fatal(err)
		}
		a := r.start("a", r.answering)
		time.Sleep(5 * time.Minute)
		r.answered(`done done "answer to 1"`, "no key dead_lettered dead_lettered", "no handler dead_lettered dead_lettered")
		r.end(a)
	})
}

// claimsNoted is a ledger that notes what its claims ask for, and are told.
type claimsNoted struct {
	ledger.Store
	claims *[]string
}

func (s claimsNoted) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	c, err := s.Store.Claim(ctx, r)
	*s.claims = append(*s.claims, fmt.Sprintf("%s, verdict only %t", c.Verdict, r.VerdictOnly))
	return c, err
}

// A duplicate reads the result for whoever waits for it, and for nobody else.
func TestResultsAreReadForWhoAsks(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var claims []string
		a := r.start("a", r.answering, func(c *consumer.Config) { c.Store = claimsNoted{c.Store, &claims} })
		r.send("1")
		time.Sleep(time.Minute)
		r.send("1")
		time.Sleep(time.Minute)
		r.askFor("1", "c1")
		time.Sleep(time.Minute)
		r.answered(`c1 done "answer to 1"`)
		if want := []string{"run, verdict only true", "saved, verdict only true", "saved, verdict only false"}; !slices.Equal(claims, want) {
			t.Errorf("claims %q, want %q", claims, want)
		}
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// A failure, a refusal and a cancel are answers too.
func TestAnswersSayWhyThereIsNoResult(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(_ context.Context, _ *job.Run, in ask) error {
			if in.Doc == "cancelled" {
				time.Sleep(time.Minute)
				return nil
			}
			return job.Fail(errors.New("never for " + in.Doc))
		}
		r.redact = func(_ job.Part, body []byte) []byte { return []byte(strings.ReplaceAll(string(body), "secret", "***")) }
		a := r.start("a", r.answering)
		r.askFor("secret", "c1")
		r.askWith("not json", "", "c2")
		r.askWith(`{"Tenant":"acme","Doc":"1","Rev":"x"}`, "ask", "c3")
		r.askFor("cancelled", "c4")
		time.Sleep(10 * time.Second)
		if _, err := r.led.Resolve(t.Context(), ledger.Resolution{Key: key("cancelled"), Action: ledger.Cancel, By: ledger.ByPerson, Who: "ann", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		for _, m := range r.q.Replies("answers") {
			if strings.Contains(string(m.Body), "never for secret") {
				t.Errorf("an answer shows what is redacted: %s", m.Body)
			}
			r.q.Reply(t.Context(), "answers", m) // put back
		}
		r.answered("c1 failed permanent", "c2 dead_lettered dead_lettered", "c3 dead_lettered dead_lettered", "c4 cancelled cancelled")
		r.askFor("secret", "c5")
		time.Sleep(time.Minute)
		r.answered("c5 failed permanent")
		r.end(a)
		r.queue(memory.Depth{}, "PO401", "PO403")
	})
}

// A held job says so at once; the result follows when it is found, to where the first message asked.
func TestUnknownIsAnAnswerAndTheResultFollows(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(_ string, n int) (time.Duration, error) { return time.Second, errReset }
		a := r.start("a", r.answering)
		r.askFor("1", "c1")
		time.Sleep(time.Minute)
		r.answered("c1 unknown held")
		r.askFor("1", "c2")
		time.Sleep(time.Minute)
		r.answered("c2 unknown held")
		r.end(a)
		b := r.start("b", r.answering)
		j := r.job("1")
		if _, err := r.led.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID},
			ledger.Evidence{State: ledger.Received, By: ledger.ByPerson, Who: "ann", Response: &ledger.Response{Codec: "json", Body: []byte(`"answer to 1"`)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		r.answered(`c1 done "answer to 1"`)
		r.end(b)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// replier answers by what a test says of its n-th answer, from 1.
type replier struct {
	broker.Replier
	n    atomic.Int64
	says func(n int64) error
}

func (p *replier) Reply(ctx context.Context, to string, m broker.Message) error {
	if err := p.says(p.n.Add(1)); err != nil {
		return err
	}
	return p.Replier.Reply(ctx, to, m)
}

// An answer that the broker does not take is sent when the message comes again: nothing is run and paid
// for another time. Meanwhile the message is not acknowledged.
func TestAnswersOutlastABrokerThatTakesNone(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		until := time.Now().Add(5 * time.Minute)
		p := &replier{Replier: r.q, says: func(int64) error {
			if time.Now().Before(until) {
				return broker.ErrUnavailable
			}
			return nil
		}}
		a := r.start("a", func(c *consumer.Config) { c.Replies = p })
		r.askFor("1", "c1")
		time.Sleep(4 * time.Minute)
		r.want("1", done1)
		r.answered()
		if d := r.q.Depth(); d == (memory.Depth{}) {
			t.Error("the message was acknowledged, and nobody was told")
		}
		time.Sleep(time.Hour)
		r.end(a)
		r.answered(`c1 done "answer to 1"`)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// A worker that dies between the result and its answer leaves the answer to the next one.
func TestAnswersOutliveTheirWorker(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var a *node
		p := &replier{Replier: r.q, says: func(int64) error { a.kill(); return errGone }}
		a = r.start("a", func(c *consumer.Config) { c.Replies = p })
		r.askFor("1", "c1")
		time.Sleep(10 * time.Second)
		r.want("1", done1)
		b := r.start("b", r.answering)
		time.Sleep(10 * time.Minute)
		r.end(b)
		r.answered(`c1 done "answer to 1"`)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// Who asked and has gone holds nothing up, and a result that fits into no message is said to be in the ledger.
func TestAnswersThatNobodyTakes(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := &replier{Replier: r.q, says: func(n int64) error {
			if n == 1 {
				return broker.ErrUnroutable
			}
			return nil
		}}
		a := r.start("a", func(c *consumer.Config) { c.Replies = p })
		r.askFor("1", "gone")
		time.Sleep(time.Minute)
		r.answered()
		r.queue(memory.Depth{})
		p.says = func(n int64) error {
			if n%2 == 0 {
				return broker.ErrTooLarge
			}
			return nil
		}
		r.askFor("1", "c2")
		time.Sleep(time.Minute)
		r.end(a)
		r.answered("c2 done too_large")
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}
