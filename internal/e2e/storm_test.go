package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/internal/sqstest"
	"github.com/paidonce/paidonce/ledger"
)

// shortStorm is the length of the storm that make test has, with the seed that all random tests here have.
const shortStorm, shortSeed = 12 * time.Second, 7

var stormFor = flag.Duration("for", shortStorm, "how long TestStorm injects faults; make storm takes 3m")

const (
	stormLease  = 2 * time.Second
	stormSettle = 6 * time.Second
	stormHold   = 6 * time.Second
)

// stormFaults are what the model server does to a share of the requests.
var stormFaults = []modelserver.Fault{
	{Kind: modelserver.Close}, {Kind: modelserver.Reset}, {Kind: modelserver.Cut}, {Kind: modelserver.HTML200},
	{Kind: modelserver.BadGateway}, {Kind: modelserver.BadGateway, Billed: new(false)}, {Kind: modelserver.GatewayTime}, {After: 5 * time.Second},
	{Kind: modelserver.RateLimit}, {Kind: modelserver.ServerError}, {Kind: modelserver.Overloaded}, {Kind: modelserver.Unavailable},
}

// tempest is a World in a storm: its workers reach what they need through proxies that break, the test itself reaches
// it by another way. Two workers are on RabbitMQ, one of them behind PgBouncer; the third is on SQS. The same jobs
// come over both.
type tempest struct {
	*World
	sink *smtpsink.Sink
	stub *slackstub.Stub

	primary, standby *pgtest.Server
	calm             *faultproxy.Proxy // to the database, for the test
	pg, amqp, http   *faultproxy.Proxy // to the servers, for the workers
	bouncer          *pgtest.Bouncer
	rabbit           *rabbittest.Server
	vhost            string // its URL, without a proxy
	sqs              Queue

	env     [][]string // of each worker
	workers []*Proc
	down    []bool      // killed, and not yet due
	tried   []time.Time // when it was started last
	starts  int
	alone   int // workers that ended before they were up, though nobody killed them
	ended   []struck
	synced  int      // fsyncs and fdatasyncs begun on a slow disk
	refused int      // writes to a full disk, of tables
	last    []func() // what ends after everything else, the latest first
}

// struck is a fault that is over.
type struck struct {
	strike
	over time.Time
}

// TestStorm: whole workers on real servers in a storm of faults, and then the whole history is read. It breaks servers that
// others share, so it is not parallel.
func TestStorm(t *testing.T) {
	all := plan(*seed, *stormFor)
	t.Logf("seed %d, %v: again with -seed %[1]d -for %[2]v\n%s", *seed, *stormFor, lines(all))
	s := newTempest(t)
	batches := stormLoad(*seed, int(4*stormFor.Seconds()))
	for _, b := range batches {
		for _, d := range b.docs {
			s.docs[d.Key] = d
		}
	}
	for i := range s.workers {
		s.launch(i)
	}
	for _, p := range s.workers {
		p.Says(`"setting":"http.listen","address":"([^"]+)"`)
	}
	time.Sleep(rabbittest.SettleTime) // the queues must have reached the disk before the broker is killed
	var submitting sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); submitting.Wait() })
	var again int
	submitting.Go(func() { again = s.submitAll(ctx, batches, *stormFor) })
	s.rage(all)
	submitting.Wait()
	s.untilSettled()
	s.UntilQuiet()
	s.Leave(s.workers...)
	h := s.history()
	t.Log(s.report(h, again))
	for _, v := range h.violations() {
		t.Error(v)
	}
	s.checkLogs()
	if !t.Failed() {
		seen(t, h)
	}
}

func lines[T fmt.Stringer](all []T) string {
	var b strings.Builder
	for _, v := range all {
		fmt.Fprintln(&b, v)
	}
	return b.String()
}

func newTempest(t *testing.T) *tempest {
	t.Helper()
	s := &tempest{}
	t.Cleanup(func() {
		for _, end := range slices.Backward(s.last) {
			end()
		}
	})
	s.primary, s.rabbit = pgtest.StartWithDisk(t), rabbittest.Start(t)
	direct := s.primary.URL(t)
	s.standby = s.primary.Standby(t)
	s.calm, s.pg = faultproxy.Start(t, s.primary.Addr()), faultproxy.Start(t, s.primary.Addr())
	through := func(p *faultproxy.Proxy) string { return strings.Replace(direct, s.primary.Addr(), p.Addr(), 1) }
	s.bouncer = pgtest.StartPgBouncer(t, through(s.pg))
	s.World = NewWorld(t, Options{
		Database: through(s.calm), Workers: 6, Lease: stormLease, SettleWindow: stormSettle, Hold: stormHold,
		Policies: map[string]string{moderate.Name: "replay:1"},
		// Nobody can be asked about a ticket, the store about an invoice, and OpenAI about what it does in the background.
		Routes: map[string]string{summarize.Name: "anthropic 4s", invoice.Name: "openai 4s", moderate.Name: "openai 4s background"},
		Models: modelserver.Options{Latency: 300 * time.Millisecond, Storm: modelserver.Storm{Seed: *seed, Rate: 0.12, Faults: stormFaults}},
	})
	s.steps()
	s.brokers()
	onRabbit := "PAIDONCE_BROKER_URL=" + strings.Replace(s.vhost, s.rabbit.Addr(), s.amqp.Addr(), 1)
	s.env = [][]string{
		{onRabbit, "PAIDONCE_LEDGER_URL=" + through(s.pg)},
		{onRabbit, "PAIDONCE_LEDGER_URL=" + s.bouncer.URL},
		append(env(s.sqs), "PAIDONCE_LEDGER_URL="+through(s.pg)),
	}
	n := len(s.env)
	s.workers, s.down, s.tried = make([]*Proc, n), make([]bool, n), make([]time.Time, n)
	return s
}

// steps starts where tickets tell people of their results.
func (s *tempest) steps() {
	var err error
	if s.sink, err = smtpsink.Start(smtpsink.Options{}); err != nil {
		s.t.Fatal(err)
	}
	if s.stub, err = slackstub.Start(slackstub.Options{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.sink.Close(); s.stub.Close() })
	s.World.env = append(s.World.env, "PAIDONCE_STEPS_EMAIL_SMTP_URL="+s.sink.URL(), "PAIDONCE_STEPS_EMAIL_FROM=support@acme.example",
		"PAIDONCE_STEPS_SLACK_BASE_URL="+s.stub.URL(), "PAIDONCE_STEPS_SLACK_TOKEN="+slackstub.Token)
}

// brokers puts proxies before them, and adds up what lies in the queues of both.
func (s *tempest) brokers() {
	s.t.Helper()
	s.vhost = s.Queue.Env["PAIDONCE_BROKER_URL"]
	s.amqp = faultproxy.Start(s.t, s.rabbit.Addr())
	s.sqs = SQS.open(s.t, Options{Visibility: 6 * time.Second})
	u, err := url.Parse(sqstest.Start(s.t).Endpoint())
	if err != nil {
		s.t.Fatal(err)
	}
	s.http = faultproxy.Start(s.t, u.Host)
	s.sqs.Env["PAIDONCE_BROKER_ENDPOINT"] = "http://" + s.http.Addr()
	rabbit := s.Queue.Depth
	s.Queue.Depth = func() Depth {
		a, b := rabbit(), s.sqs.Depth()
		return Depth{a.Ready + b.Ready, a.Unacked + b.Unacked, a.Delayed + b.Delayed, a.Dead + b.Dead}
	}
}

func env(q Queue) (all []string) {
	for name, v := range q.Env {
		all = append(all, name+"="+v)
	}
	return all
}

// launch starts a worker without waiting for it: what it needs may be down.
func (s *tempest) launch(i int) {
	s.t.Helper()
	s.starts++
	p := &Proc{w: s.World, name: fmt.Sprintf("%d.%d", i, s.starts), cmd: exec.Command(binary(s.t), "run"), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = slices.Concat(s.World.env, s.env[i]), s.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	s.begin(p)
	s.workers[i], s.tried[i], s.down[i] = p, time.Now(), false
}

// supervise starts what has ended by itself, as a supervisor does: a worker does not come up where its ledger is down. One that was
// up never ends for that.
func (s *tempest) supervise() {
	s.t.Helper()
	for i, p := range s.workers {
		if !s.down[i] && !p.Alive() && time.Since(s.tried[i]) > time.Second {
			if strings.Contains(p.log.String(), `"setting":"http.listen","address":`) {
				s.t.Errorf("worker %s was up, and ended with %v", p.name, p.cmd.ProcessState)
			}
			s.alone++
			s.launch(i)
		}
	}
}

// rage carries a plan out. A strike that begins late, as others took long to make, lasts as long as any, and what is next at its
// place waits for its end.
func (s *tempest) rage(all []strike) {
	s.t.Helper()
	type ending struct {
		at time.Duration
		do func()
	}
	begun := time.Now()
	over := map[strike]ending{}
	busy := func(on string) bool {
		for k := range over {
			if k.on == on {
				return true
			}
		}
		return false
	}
	for pending := slices.Clone(all); len(pending)+len(over) > 0; {
		for k, end := range over {
			if end.at <= time.Since(begun) {
				delete(over, k)
				end.do()
				s.ended = append(s.ended, struck{k, time.Now()})
			}
		}
		if len(pending) > 0 && pending[0].at <= time.Since(begun) && !busy(pending[0].on) {
			k := pending[0]
			pending = pending[1:]
			end := s.strike(k)
			over[k] = ending{time.Since(begun) + k.lasts, end}
			continue
		}
		s.supervise()
		time.Sleep(20 * time.Millisecond)
	}
}

// untilSettled waits until nothing but a person changes what is not done.
func (s *tempest) untilSettled() {
	s.t.Helper()
	s.Eventually(func() (bool, string) {
		s.supervise()
		jobs := s.Jobs()
		for key := range s.docs {
			if jobs[key].State == "" {
				return false, key + " is not in the ledger"
			}
		}
		for key, j := range jobs {
			if !j.State.Terminal() && !s.heldFor(j) {
				return false, fmt.Sprintf("%s is %s\n%s", key, j.State, story(s.Job(key)))
			}
		}
		return true, ""
	})
}

// heldFor reports whether a job that has not ended waits for a person.
func (s *tempest) heldFor(j ledger.Job) bool {
	switch {
	case j.State != ledger.Unknown:
		return false
	case j.Action == invoice.Name: // it is found, unless the provider never had it, which no look proves
		return len(s.Models.BillByKey()[j.Key.Text]) == 0
	case j.Action == moderate.Name: // once replayed, and then held unless it is found
		j = s.Job(j.Key.Text)
		return j.Replays == 1 && time.Since(j.Attempts[len(j.Attempts)-1].SentAt) > 2*stormSettle
	}
	return true
}

// batch is what one client submits: over one broker or both, once or twice.
type batch struct {
	docs []Doc
	over []string // brokers, in order
}

// submitAll submits the load over so long, each batch again until that succeeds, and returns how often it had to.
func (s *tempest) submitAll(ctx context.Context, all []batch, length time.Duration) (again int) {
	pause := length / time.Duration(len(all))
	for _, b := range all {
		due := time.After(pause)
		for _, over := range b.over {
			for !s.submit(ctx, b, over) && ctx.Err() == nil {
				again++
				wait(ctx, time.After(300*time.Millisecond))
			}
		}
		wait(ctx, due)
	}
	return again
}

func wait(ctx context.Context, c <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-c:
	}
}

// submit is a client with a time limit. Whether its messages arrived it may never learn.
func (s *tempest) submit(ctx context.Context, b batch, over string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	bin, err := built()
	if err != nil {
		return false
	}
	var text bytes.Buffer
	for _, d := range b.docs {
		text.WriteString(d.Line + "\n")
	}
	cmd := exec.CommandContext(ctx, bin, "submit", "--job", b.docs[0].Job)
	cmd.Env, cmd.Dir, cmd.Stdin = slices.Concat(s.World.env, s.env[map[string]int{"rabbitmq": 0, "sqs": 2}[over]]), s.dir, &text
	return cmd.Run() == nil
}
