//go:build soak

package e2e

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/internal/sqstest"
)

var (
	soakFor  = flag.Duration("soak", 30*time.Minute, "how long TestSoak loads its workers")
	soakRate = flag.Float64("rate", 20, "jobs a second in TestSoak; each comes twice")
)

// TestSoak: two workers under a steady load, one on RabbitMQ and one on SQS; every message comes twice, a few requests are
// refused and sent again, and all their connections to the database and the brokers are reset twenty times. What a worker has
// of memory, goroutines and open files in the last third of the time is what it had in the first. Nothing is compared with a clock.
func TestSoak(t *testing.T) {
	direct := pgtest.URL(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	pg := faultproxy.Start(t, u.Host)
	const patient = "openai 60s" // a timeout would be another test
	w := NewWorld(t, Options{Database: direct, Lease: 20 * time.Second, SettleWindow: time.Minute, Hold: time.Minute,
		Routes: map[string]string{summarize.Name: patient, invoice.Name: patient, moderate.Name: patient}, Models: modelserver.Options{
			Latency: 300 * time.Millisecond,
			Storm: modelserver.Storm{Seed: *seed, Rate: 0.02, Faults: []modelserver.Fault{
				{Kind: modelserver.RateLimit}, {Kind: modelserver.ServerError}, {Kind: modelserver.Overloaded}}},
		}})
	rabbit, overSQS := rabbittest.Start(t), SQS.open(t, Options{})
	amqp := faultproxy.Start(t, rabbit.Addr())
	moto, err := url.Parse(sqstest.Start(t).Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	http := faultproxy.Start(t, moto.Host)
	toSQS := env(overSQS)
	overSQS.Env["PAIDONCE_BROKER_ENDPOINT"] = "http://" + http.Addr()
	database := "PAIDONCE_LEDGER_URL=" + strings.Replace(direct, u.Host, pg.Addr(), 1)
	procs := []*Proc{
		w.Start("rabbitmq", database, "PAIDONCE_BROKER_URL="+strings.Replace(w.Queue.Env["PAIDONCE_BROKER_URL"], rabbit.Addr(), amqp.Addr(), 1)),
		w.Start("sqs", append(env(overSQS), database)...),
	}
	alone := w.Queue.Depth
	w.Queue.Depth = func() Depth {
		a, b := alone(), overSQS.Depth()
		return Depth{a.Ready + b.Ready, a.Unacked + b.Unacked, a.Delayed + b.Delayed, a.Dead + b.Dead}
	}
	samples := w.soak(procs, toSQS, []*faultproxy.Proxy{pg, amqp, http})
	t.Logf("%d jobs in %v, %d cores, %s\n%s", len(w.docs), *soakFor, runtime.NumCPU(), loadAverage(), soakTable(names(procs), samples))
	w.Until(Expect{})
	w.UntilQuiet()
	w.Leave(procs...)
	for key, lines := range w.Models.BillByKey() {
		if len(lines) != 1 {
			t.Errorf("%s was paid %d times", key, len(lines))
		}
	}
	if d := w.Depth(); d != (Depth{}) {
		t.Errorf("the queues hold %+v", d)
	}
	for i, p := range procs {
		for _, what := range notFlat(samples[i]) {
			t.Errorf("worker %s has %s", p.name, what)
		}
	}
	w.checkLogs()
}

// soak loads the workers and samples them. A third of the batches goes to SQS.
func (w *World) soak(procs []*Proc, toSQS []string, links []*faultproxy.Proxy) [][]soakSample {
	w.t.Helper()
	const (
		samples = 90
		resets  = 20
		beat    = 2 * time.Second
	)
	all := make([][]soakSample, len(procs))
	rabbit := w.env
	begun := time.Now()
	sampled, reset := 0, 0
	for n := 0; ; n++ {
		if due := begun.Add(time.Duration(n) * beat); time.Now().Before(due) {
			time.Sleep(time.Until(due))
		}
		now := time.Since(begun)
		if now >= *soakFor {
			break
		}
		if len(w.docs)-len(w.Models.BillByKey()) < soakBacklog { // a machine that is busy with other things gets less
			if w.env = rabbit; n%3 == 2 {
				w.env = slices.Concat(rabbit, toSQS)
			}
			w.Submit(2, soakDocs(n, int(*soakRate*beat.Seconds()))...)
			w.env = rabbit
		}
		if now > time.Duration(reset+1)**soakFor/(resets+1) {
			reset++
			for _, l := range links {
				l.Reset()
			}
		}
		if now >= time.Duration(sampled+1)**soakFor/samples {
			sampled++
			for i, p := range procs {
				all[i] = append(all[i], w.sample(p, now))
			}
		}
	}
	return all
}

// soakBacklog is how many jobs may wait for their call. The emulator of SQS is slow with a long queue.
const soakBacklog = 200

// soakDocs is a batch: three kinds of jobs, as many of each.
func soakDocs(n, size int) (docs []Doc) {
	for i := range size {
		id := fmt.Sprintf("%d-%d", n, i)
		switch i % 3 {
		case 0:
			docs = append(docs, Ticket(id))
		case 1:
			docs = append(docs, Invoice(id))
		case 2:
			docs = append(docs, content("acme", id))
		}
	}
	return docs
}

func (w *World) sample(p *Proc, at time.Duration) soakSample {
	w.t.Helper()
	m, d := p.Metrics(), w.Depth()
	s := soakSample{at: at, rss: m["process_resident_memory_bytes"], heap: m["go_memstats_heap_inuse_bytes"],
		goroutines: m["go_goroutines"], fds: m["process_open_fds"], backlog: int64(d.Ready + d.Unacked + d.Delayed)}
	if s.rss == 0 || s.heap == 0 || s.goroutines == 0 || s.fds == 0 {
		w.t.Fatalf("worker %s does not say what it has: %+v", p.name, s)
	}
	s.ledger = Query[int64](w.t, w.URL, `select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
		join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'paidonce' and c.relkind = 'r'`)
	s.rows = Query[int64](w.t, w.URL, "select count(*) from paidonce.job where state = 'done'")
	s.conns = Query[int64](w.t, w.URL, "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	return s
}

func names(procs []*Proc) (all []string) {
	for _, p := range procs {
		all = append(all, p.name)
	}
	return all
}

// loadAverage is what else the machine had to do, where it says so.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load unknown"
	}
	return "load " + strings.Join(strings.Fields(string(text))[:3], " ")
}
