package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// letter is a ticket message that was set aside.
func letter(ticket, thread string) broker.Message {
	return broker.Message{ID: "m-" + ticket + "-" + thread, Attributes: map[string]string{"job": "ticket.summary"},
		Body: fmt.Appendf(nil, `{"tenant":"acme","ticket":%q,"revision":1,"thread":%q}`, ticket, thread)}
}

func letterKey(ticket string) string { return "acme:ticket.summary:" + ticket + ":v1:p7" }

// setAside makes a dead letter of m.
func (w *world) setAside(s interface {
	broker.Source
	broker.Publisher
}, m broker.Message, reason string) {
	w.t.Helper()
	if err := s.Publish(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
	ds, err := s.Receive(w.t.Context(), 1)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.DeadLetter(w.t.Context(), ds[0], reason); err != nil {
		w.t.Fatal(err)
	}
}

// runs claims the job of m for a worker that is not there.
func (w *world) runs(m broker.Message) ledger.Lease {
	w.t.Helper()
	in := w.input(m)
	id, err := w.ledger.Join(w.t.Context(), ledger.Worker{ID: "away", TTL: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := w.ledger.Claim(w.t.Context(), ledger.Request{Key: in.Key.Ledger(), Action: "ticket.summary", InputHash: in.Hash,
		Carrier: ledger.CarriedByBroker, Worker: id, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		w.t.Fatalf("claim: %v, %v", c.Verdict, err)
	}
	return c.Lease
}

func (w *world) input(m broker.Message) job.Input {
	w.t.Helper()
	_, in := w.decoded(m)
	return in
}

// decoded is m as a worker reads it.
func (w *world) decoded(m broker.Message) (*job.Handler, job.Input) {
	w.t.Helper()
	cfg, err := (&call{Process: Process{Environ: w.env}}).load()
	if err != nil {
		w.t.Fatal(err)
	}
	h, in, err := consumerConfig(cfg).Decode(w.t.Context(), m)
	if err != nil {
		w.t.Fatal(err)
	}
	return h, in
}

// sent puts a call of the run on record; with an answer it is settled too.
func (w *world) sent(l ledger.Lease, answered bool) {
	w.t.Helper()
	a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "summarise"}, Route: "primary", Provider: "openai", Model: "m", Timeout: time.Minute}
	err := w.ledger.Send(w.t.Context(), l, a)
	if err == nil && answered {
		_, err = w.ledger.Settle(w.t.Context(), ledger.AttemptID{Tenant: l.Key.Tenant, Job: l.Job, ID: a.ID}, ledger.Evidence{State: ledger.Received,
			By: ledger.BySender, Response: &ledger.Response{Codec: "json", Body: []byte(`{"summary":"kept"}`)}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) release(l ledger.Lease, o ledger.Outcome) {
	w.t.Helper()
	if _, err := w.ledger.Release(w.t.Context(), l, o); err != nil {
		w.t.Fatal(err)
	}
}

// deadLetters makes one dead letter for each thing that can be known of its job.
func (w *world) deadLetters() {
	w.t.Helper()
	done := w.runs(letter("done", "x"))
	if err := w.ledger.Complete(w.t.Context(), done, ledger.Result{ID: ledger.NewID(), Body: []byte(`{"summary":"done"}`)}); err != nil {
		w.t.Fatal(err)
	}
	w.sent(w.runs(letter("running", "x")), false)
	unknown := w.runs(letter("unknown", "x"))
	w.sent(unknown, false)
	w.release(unknown, ledger.Outcome{Error: ledger.JobError{Class: "retry"}})
	w.release(w.runs(letter("failed", "x")), ledger.Outcome{Fail: true, Error: ledger.JobError{Class: "permanent"}})
	w.release(w.runs(letter("cancelled", "x")), ledger.Outcome{RetryIn: time.Hour})
	if _, err := w.ledger.Resolve(w.t.Context(), ledger.Resolution{Key: w.input(letter("cancelled", "x")).Key.Ledger(), Action: ledger.Cancel, By: ledger.ByPerson}); err != nil {
		w.t.Fatal(err)
	}
	answered := w.runs(letter("answered", "x"))
	w.sent(answered, true)
	w.release(answered, ledger.Outcome{})

	for _, m := range []broker.Message{letter("new", "x"), letter("done", "x"), letter("running", "x"), letter("unknown", "x"), letter("failed", "x"),
		letter("cancelled", "x"), letter("answered", "x"), letter("new", "x")} {
		w.setAside(w.queue, m, "receive limit of 1000 reached")
	}
	w.setAside(w.queue, letter("done", "another input"), "PO406 key "+letterKey("done")+" stands for another input already")
	w.setAside(w.queue, broker.Message{ID: "m-bad", Body: []byte("not\x1b[2J json")}, "PO401 body is no JSON object\nand \x1b[2J shows")
	w.setAside(w.queue, broker.Message{ID: "m-old", Body: []byte("{}"), Attributes: map[string]string{"job": "ticket.sumary"}}, "")
}

func (w *world) lettersLeft() (reasons []string) {
	for _, d := range w.queue.DeadLetters() {
		reasons = append(reasons, d.ID)
	}
	return reasons
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+Z`)

// Case 64: dead letters are listed with their reasons, and redriven after a preview of what that costs.
func TestDeadLettersAreAskedOfTheLedger(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	w.deadLetters()
	before := w.lettersLeft()
	golden(t, "dlq.txt", times.ReplaceAllString(w.must("", "dlq", "list"), "2026-01-02 03:04:05.678Z"))
	golden(t, "dlq.json", times.ReplaceAllString(w.must("", "dlq", "list", "--json"), "2026-01-02T03:04:05.678Z"))
	dry := w.must("", "dlq", "redrive", "--dry-run")
	if !strings.HasSuffix(dry, "\ndry run: nothing was changed\n") {
		t.Errorf("a dry run says\n%s", dry)
	}
	if after := w.lettersLeft(); !slices.Equal(after, before) || w.queue.Depth() != (brokermemory.Depth{}) {
		t.Errorf("looking changed the dead letters from %q to %q, queue %+v", before, after, w.queue.Depth())
	}

	w.refused(exitUsage, "", []string{"dlq", "redrive"}, "PO502 --reason")
	o := w.do("", "dlq", "redrive", "--reason", "the deploy is fixed")
	if want := "11 dead letters: 1 has a saved result (0.00), 2 will run with answers that are kept (0.00), 1 will call the model, 1 is unknown and will be skipped"; o.code != exitDone || !strings.Contains(o.stdout, want) || !strings.Contains(o.stdout, "1 dropped, 3 redriven, 7 left\n") {
		t.Errorf("exit %d, says\n%s\nwant %s", o.code, o.stdout, want)
	}
	for _, want := range []string{`"who":"ann@`, `"reason":"the deploy is fixed","redriven":3,"dropped":1,"left":7`} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("who did what, and why, is not logged: %s\n%s", want, o.stderr)
		}
	}
	left := []string{"m-running-x", "m-unknown-x", "m-failed-x", "m-cancelled-x", "m-done-another input", "m-bad", "m-old"}
	if got := w.lettersLeft(); !slices.Equal(got, left) || w.queue.Depth() != (brokermemory.Depth{Ready: 3}) {
		t.Errorf("left are %q, want %q; the queue holds %+v", got, left, w.queue.Depth())
	}

	r := w.start()
	w.until(letterKey("new"), "done")
	w.until(letterKey("answered"), "done")
	eventually(t, func() (bool, string) {
		d := w.queue.Depth()
		return d == brokermemory.Depth{}, fmt.Sprintf("queue %+v", d)
	})
	r.stop()
	if n := len(ms.Bill()); n != 1 { // of the new one; its duplicate and the answered one cost nothing
		t.Errorf("%d calls on the bill, the preview said 1", n)
	}
	if got := w.lettersLeft(); !slices.Equal(got, left) {
		t.Errorf("after the run left are %q", got)
	}
}

func TestDeadLettersFiltered(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	other := letter("1", "x")
	other.Body = []byte(strings.Replace(string(other.Body), "acme", "zeta", 1))
	w.setAside(w.queue, letter("1", "x"), "PO408 no handler")
	w.setAside(w.queue, other, "PO408 no handler")
	w.setAside(w.queue, broker.Message{Attributes: map[string]string{"job": "invoice.extract"}, Body: []byte(`{"tenant":"acme","document":"7","text":"x"}`)}, "delivery_limit")
	type counts struct {
		shown  int
		hidden hiddenDocument
	}
	for args, want := range map[string]counts{
		"":                             {3, hiddenDocument{}},
		"--job invoice.extract":        {1, hiddenDocument{Filtered: 2}},
		"--tenant zeta":                {1, hiddenDocument{Filtered: 2}},
		"--match PO408":                {2, hiddenDocument{Filtered: 1}},
		"--tenant acme --match PO408":  {1, hiddenDocument{Filtered: 2}},
		"--job none":                   {0, hiddenDocument{Filtered: 3}},
		"--limit 3":                    {3, hiddenDocument{}},
		"--limit 2":                    {2, hiddenDocument{Limit: true}},
		"--limit 2 --tenant zeta":      {1, hiddenDocument{Filtered: 1, Limit: true}},
		"--limit 9223372036854775807":  {3, hiddenDocument{}},
		"--limit 1 --match no --job n": {0, hiddenDocument{Filtered: 1, Limit: true}},
	} {
		var d dlqDocument
		err := json.Unmarshal([]byte(w.must("", append([]string{"dlq", "list", "--json"}, strings.Fields(args)...)...)), &d)
		if got := (counts{len(d.DeadLetters), d.Hidden}); err != nil || got != want {
			t.Errorf("dlq list %s has %+v, want %+v (%v)", args, got, want, err)
		}
	}
	for args, want := range map[string]string{
		"list --job none": "not shown, since they are not what --job none asks for: 3\n",
		"list --limit 1 --match no --tenant t": "not shown, since they are not what --tenant t --match no asks for: 1\n" +
			"there are more: --limit 1 was reached; raise it\n",
		"redrive --dry-run --job none": "not shown, since they are not what --job none asks for: 3\n",
	} {
		if out := w.must("", append([]string{"dlq"}, strings.Fields(args)...)...); out != want {
			t.Errorf("dlq %s says\n%swant\n%s", args, out, want)
		}
	}
	if out, want := w.must("", "dlq", "list", "--limit", "2", "--job", "ticket.summary"), "\nthere are more: --limit 2 was reached; raise it\n"; !strings.HasSuffix(out, want) || !strings.HasPrefix(out, "KEY") {
		t.Errorf("with a limit dlq list says\n%s", out)
	}
	w.must("", "dlq", "redrive", "--reason", "r", "--match", "PO408", "--tenant", "zeta")
	if d := w.queue.Depth(); d.Ready != 1 || len(w.lettersLeft()) != 2 {
		t.Errorf("a filtered redrive left %q, queue %+v", w.lettersLeft(), d)
	}
	w.must("", "dlq", "redrive", "--reason", "r", "--limit", "1")
	if d := w.queue.Depth(); d.Ready != 2 || len(w.lettersLeft()) != 1 {
		t.Errorf("a redrive of one left %q, queue %+v", w.lettersLeft(), d)
	}
	w.must("", "dlq", "redrive", "--reason", "r")
	if out := w.must("", "dlq", "list", "--job", "none"); out != "no dead letters\n" {
		t.Errorf("says %q", out)
	}
	w.refused(exitUsage, "", []string{"dlq", "list", "--limit", "0"}, "PO502 --limit")
	w.queue = nil
	w.refused(exitUsage, "", []string{"dlq", "list"}, "PO504")
}

// away is a ledger that stops answering.
type away struct {
	ledger.Store
	after int
}

func (a *away) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	if a.after--; a.after < 0 {
		return ledger.Job{}, errors.New("connection refused")
	}
	return a.Store.Job(ctx, k)
}

// While the ledger cannot be asked nothing is redriven: not this dead letter, and not
// the next one.
func TestDeadLettersWithoutLedger(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for _, n := range []string{"1", "2", "3"} {
		w.setAside(w.queue, letter(n, "x"), "delivery_limit")
	}
	cfg, err := (&call{Process: Process{Environ: w.env}}).load()
	if err != nil {
		t.Fatal(err)
	}
	r := &review{filter: dlqFilter{Limit: 10}, apply: true, messages: consumerConfig(cfg), store: &away{w.ledger, 1}, seen: map[string]bool{}}
	err = r.all(t.Context(), w.queue)
	if err == nil || !strings.Contains(err.Error(), "PO515") || !strings.Contains(err.Error(), "job "+letterKey("2")+": connection refused") {
		t.Errorf("error %v", err)
	}
	if got := w.lettersLeft(); !slices.Equal(got, []string{"m-2-x", "m-3-x"}) || w.queue.Depth().Ready != 1 || r.doc.Summary.Redriven != 1 || r.doc.Hidden != (hiddenDocument{BrokeOff: true}) {
		t.Errorf("left are %q, queue %+v, summary %+v, hidden %+v", got, w.queue.Depth(), r.doc.Summary, r.doc.Hidden)
	}
}

// A broker that does not answer is not one without dead letters.
func TestDeadLettersOutOfReach(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.setAside(w.queue, letter("1", "x"), "delivery_limit")
	if err := w.queue.Close(); err != nil {
		t.Fatal(err)
	}
	o := w.do("", "dlq", "list")
	if o.code != exitFailed || o.stdout != "the look broke off: there may be more\n" || !strings.Contains(o.stderr, "PO515") {
		t.Errorf("exit %d, says\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// Of a FIFO group SQS shows ten at once. What stays hides the rest, and that is said.
func TestDeadLettersOfAFIFOGroup(t *testing.T) {
	t.Parallel()
	srv := sqsfake.Start(t, sqsfake.Options{Running: true})
	fifo := map[string]string{"FifoQueue": "true"}
	srv.CreateQueue("jobs-dead.fifo", fifo)
	srv.CreateQueue("jobs.fifo", map[string]string{"FifoQueue": "true", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1000}`, sqsfake.ARN("jobs-dead.fifo"))})
	w := newWorldHere(t)
	w.queue = nil
	w.env = append(w.env, "PAIDONCE_BROKER_URL=sqs:", "PAIDONCE_BROKER_QUEUE=jobs.fifo", "PAIDONCE_BROKER_ENDPOINT="+srv.URL(), "PAIDONCE_BROKER_REGION="+sqsfake.Region)
	send := func(n int) {
		for i := range n {
			m := letter(fmt.Sprint(i), "x")
			srv.Send("jobs-dead.fifo", sqsfake.Entry{MessageBody: new(string(m.Body)), MessageGroupId: new("g"), MessageDeduplicationId: fmt.Sprintf("%d-%d", n, i),
				MessageAttributes: map[string]sqsfake.Attribute{"job": {DataType: "String", StringValue: new("ticket.summary")}}})
		}
	}
	const said = "there may be more: SQS shows at most 10 of a FIFO group while these stay\n"
	list := func(args ...string) (int, string) {
		out := w.must("", append([]string{"dlq"}, args...)...)
		return strings.Count(out, "acme:ticket.summary:"), out
	}
	send(9)
	if n, out := list("list"); n != 9 || strings.Contains(out, said) {
		t.Errorf("of nine it shows %d:\n%s", n, out)
	}
	send(3)
	if n, out := list("list"); n != 10 || !strings.HasSuffix(out, said) {
		t.Errorf("of twelve it shows %d:\n%s", n, out)
	}
	if n, out := list("list", "--limit", "4"); n != 4 || strings.Contains(out, said) || !strings.Contains(out, "--limit 4 was reached") {
		t.Errorf("of twelve, at most four, it shows %d:\n%s", n, out)
	}
	if n, out := list("redrive", "--reason", "r"); n != 12 || strings.Contains(out, said) { // what goes makes room for the next
		t.Errorf("of twelve it redrives %d:\n%s", n, out)
	}
	if d, q := srv.Depth("jobs-dead.fifo"), srv.Depth("jobs.fifo"); d != (sqsfake.Depth{}) || q != (sqsfake.Depth{Visible: 12}) {
		t.Errorf("the dead-letter queue holds %+v, the queue %+v", d, q)
	}
}

func TestDeadLettersOfRabbitMQ(t *testing.T) {
	w, ms := newRealWorld(t, modelserver.Options{KeyOf: func(r modelserver.Request) string { return r.MetadataKey() }})
	w.must("", "migrate", "up")
	w.submitted()
	r := w.start()
	w.until(ticketKey, "done")
	r.stop()

	b, err := rabbitmq.Open(t.Context(), rabbitmq.Config{URL: w.setting("PAIDONCE_BROKER_URL"), Queue: w.setting("PAIDONCE_BROKER_QUEUE"), Declare: true})
	if err != nil {
		t.Fatal(err)
	}
	duplicate := broker.Message{Body: []byte(ticket), Attributes: map[string]string{"job": "ticket.summary"}}
	w.setAside(b, duplicate, "delivery_limit")
	w.setAside(b, letter("new", "x"), "delivery_limit")
	w.setAside(b, broker.Message{Body: []byte("no")}, "PO401 body is no JSON object")
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	const line = "3 dead letters: 1 has a saved result (0.00), 1 will call the model, 1 cannot be read and will be skipped"
	for range 2 {
		if out := w.must("", "dlq", "list"); !strings.Contains(out, line) {
			t.Errorf("dlq list says\n%s", out)
		}
	}
	if out := w.must("", "dlq", "redrive", "--reason", "r"); !strings.Contains(out, line) || !strings.Contains(out, "1 dropped, 1 redriven, 1 left") {
		t.Errorf("dlq redrive says\n%s", out)
	}
	if out := w.must("", "dlq", "list"); !strings.Contains(out, "1 dead letter: 1 cannot be read") {
		t.Errorf("afterwards dlq list says\n%s", out)
	}
	r = w.start()
	w.until(letterKey("new"), "done")
	r.stop()
	if bill := ms.BillByKey(); len(bill[ticketKey]) != 1 || len(bill[letterKey("new")]) != 1 || len(ms.Bill()) != 2 {
		t.Errorf("the bill has %v", bill)
	}
}

// setting is a variable of the world's environment.
func (w *world) setting(name string) string {
	return (&call{Process: Process{Environ: w.env}}).environment(name)
}
