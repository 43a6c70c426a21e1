package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

var proofJobs = flag.Int("proof", 30, "how many jobs TestProof gives to each way; make proof takes 500")

// proofTimeout is that of a request, proofHold how long unknown calls wait for evidence before their policy has its say, and
// proofWindow the same where what a store does not list is believed: longer than an answer takes and the list lags.
const (
	proofTimeout = 2 * time.Second
	proofHold    = 3 * time.Second
	proofWindow  = 6 * time.Second
)

// proofFaults are all that the model server does to an answer in one piece, and all that it refuses with which may
// get better, of one chance each; the rest fails a job for good, whatever looks after it.
var proofFaults = []modelserver.Fault{
	{Kind: modelserver.Close}, {Kind: modelserver.Reset}, {Kind: modelserver.Cut}, {Kind: modelserver.CleanEnd}, {Kind: modelserver.HTML200},
	{Kind: modelserver.BadGateway}, {Kind: modelserver.GatewayTime},
	{After: 2 * proofTimeout}, {Kind: modelserver.Reset, Lag: 2},
	{Kind: modelserver.RateLimit}, {Kind: modelserver.ServerError}, {Kind: modelserver.Overloaded}, {Kind: modelserver.Overloaded529},
	{Kind: modelserver.Unavailable}, {Kind: modelserver.Conflict}, {Kind: modelserver.TimedOut},
}

// way is how jobs are looked after.
type way struct {
	name     string
	provider string // that is called
	policy   string // "": the plain recipe
	trusted  bool   // what the provider's store does not list was never made (trust_absence)
}

var ways = []way{
	{"plain recipe", "anthropic", "", false},
	{"hold", "anthropic", "hold", false},
	{"replay:1", "anthropic", "replay:1", false},
	{"reconcile", "openai", "hold", false},
	{"reconcile, trusting absence", "openai", "hold", true},
	{"reconcile, then replay:1", "openai", "replay:1", false},
}

// proof is what became of the jobs of one way.
type proof struct {
	way
	jobs, kills    int
	finished, held int
	calls, lost    int // paid; of these, answers that did not arrive whole
	crashes        int // times that a call's outcome was lost with its run, paid or not, as far as anybody noticed
	finishedCalls  int // paid for jobs that are finished
	twice          int // keys paid more than once
	wasted         int64
	off            int64 // booked less billed, of answers on record
	booked         bool
}

// TestProof gives the same jobs and the same faults to the plain recipe and to ours: every message is sent twice, a
// quarter of the requests meets a fault of the model server's, and workers are killed with calls on the wire.
func TestProof(t *testing.T) {
	t.Parallel()
	proofs := make([]*proof, len(ways))
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			proofs[i] = prove(t, way, *proofJobs)
			proofs[i].check(t)
		})
	}
	t.Cleanup(func() {
		t.Logf("%d jobs for each way, every message twice, seed %d\n%s", *proofJobs, *seed, proofTable(proofs))
	})
}

func prove(t *testing.T, y way, n int) *proof {
	routes, hold := map[string]string{}, proofHold
	for _, name := range []string{summarize.Name, invoice.Name, moderate.Name, agent.Name} {
		routes[name] = y.provider + " " + proofTimeout.String()
		if y.trusted {
			routes[name] += " trusted"
			hold = proofWindow
		}
	}
	w := NewWorld(t, Options{
		Models: modelserver.Options{Latency: 400 * time.Millisecond, Storm: modelserver.Storm{Seed: *seed, Rate: 0.25, Faults: proofFaults}},
		Routes: routes, Policy: cmp.Or(y.policy, "hold"), SettleWindow: hold, Hold: hold, Workers: max(4, n/40),
	})
	docs := make([]Doc, n)
	for i := range docs {
		docs[i] = Ticket(fmt.Sprint(i))
	}
	for range n / 100 {
		w.Models.ScriptAny(modelserver.Fault{Kind: modelserver.ResetUnread})
	}
	start := func(name string) *Proc { return w.Start(name) }
	if y.policy == "" {
		exec1(t, w.URL, plainTable)
		start = w.startPlain
	}
	w.Submit(2, docs...)
	p := &proof{way: y, jobs: n, kills: max(3, n/25), booked: y.policy != ""}
	r := rand.New(rand.NewPCG(*seed, *seed))
	procs := []*Proc{start("a0"), start("b0")}
	for k := range p.kills {
		time.Sleep(300*time.Millisecond + time.Duration(r.Int64N(int64(600*time.Millisecond))))
		i := r.IntN(len(procs))
		procs[i].Kill()
		procs[i] = start(fmt.Sprintf("%c%d", 'a'+i, k+1))
	}
	if y.policy == "" {
		p.plain(w)
	} else {
		p.ours(w)
	}
	p.bill(w)
	return p
}

// exec1 makes one statement.
func exec1(t *testing.T, url, sql string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// startPlain starts a worker of the plain recipe.
func (w *World) startPlain(name string) *Proc {
	w.t.Helper()
	p := &Proc{w: w, name: name, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = append(append([]string{}, w.env...), plainVariable+"=1"), w.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	w.begin(p)
	return p
}

// plain waits until every key has a result or was given up.
func (p *proof) plain(w *World) {
	count := func(which string) int {
		return Query[int](w.t, w.URL, "select count(*) from plain where "+which)
	}
	w.Eventually(func() (bool, string) {
		n := count(fmt.Sprintf("result is not null or tries >= %d and locked_until <= now()", plainTries))
		return n == p.jobs, fmt.Sprintf("%d of %d keys have an end", n, p.jobs)
	})
	p.finished = count("result is not null")
	p.held = p.jobs - p.finished
}

// ours waits until nothing but a person changes what is not done, which is when the policy has had its say.
func (p *proof) ours(w *World) {
	w.Eventually(func() (bool, string) {
		p.finished, p.held = 0, 0
		jobs := w.Jobs()
		for key := range w.docs {
			switch j := jobs[key]; {
			case j.State == ledger.Done:
				p.finished++
			case j.State == ledger.Failed:
				w.t.Fatalf("%s is failed\n%s", key, story(w.Job(key)))
			case j.State == ledger.Unknown && p.settled(w.Job(key)):
				p.held++
			default:
				return false, fmt.Sprintf("%s is %s", key, j.State)
			}
		}
		return true, ""
	})
}

// settled reports whether a job that is unknown waits for a person.
func (p *proof) settled(j ledger.Job) bool {
	if j.State != ledger.Unknown || p.policy != "hold" && j.Replays == 0 {
		return false
	}
	for _, a := range j.Attempts {
		if a.State == ledger.Sent && p.provider == "openai" && time.Since(a.SentAt) < 4*proofHold {
			return false // it may still be found
		}
	}
	return true
}

// bill reads what was paid.
func (p *proof) bill(w *World) {
	bill := w.Models.BillByKey()
	for key := range w.docs {
		lines := bill[key]
		var j ledger.Job
		done := false
		if p.booked {
			j = w.Job(key)
			done = j.State == ledger.Done
		} else {
			done = Query[bool](w.t, w.URL, "select result is not null from plain where key = $1", key)
		}
		if p.calls += len(lines); done {
			p.finishedCalls += len(lines)
		} else if p.booked && len(lines) > 0 && p.provider == "openai" {
			w.t.Errorf("%s is held, and OpenAI has its answer: %+v\n%s", key, lines, story(j))
		}
		if len(lines) > 1 {
			p.twice++
		}
		for i, l := range lines {
			if !l.Delivered {
				p.lost++
			}
			if i > 0 {
				p.wasted += l.Price
			}
			for _, a := range j.Attempts {
				if a.ClientRequestID == l.ClientID && a.State == ledger.Received {
					p.off -= l.Price
				}
			}
		}
		if j.Cost != nil {
			p.off += int64(*j.Cost)
		}
		for _, h := range j.History {
			if h.From == ledger.Running && h.To == ledger.Unknown {
				p.crashes++
			}
		}
	}
}

// check is what each way must reach, and that the faults are such that it matters.
func (p *proof) check(t *testing.T) {
	if p.off != 0 {
		t.Errorf("booked less billed: %s", ledger.Nano(p.off))
	}
	switch p.name {
	case "plain recipe":
		if p.twice == 0 {
			t.Error("the plain recipe paid for no key twice: these faults prove nothing")
		}
	case "hold":
		if p.twice != 0 {
			t.Errorf("%d keys were paid twice", p.twice)
		}
	case "reconcile": // what is held was never paid: bill says so
		if p.twice != 0 || p.finishedCalls != p.finished {
			t.Errorf("%d calls for %d finished jobs, %d keys paid twice", p.finishedCalls, p.finished, p.twice)
		}
	case "reconcile, trusting absence":
		if p.twice != 0 || p.finishedCalls != p.finished || p.held > max(1, p.jobs/50-1) {
			t.Errorf("%d calls for %d finished jobs of %d, %d held, %d keys paid twice; want one each, and less than 2 %% (or one) held", p.finishedCalls, p.finished, p.jobs, p.held, p.twice)
		}
	case "reconcile, then replay:1": // which sends again what is not found within the hold time
		if p.held > max(1, p.jobs/50-1) || p.twice > max(1, p.jobs/100) {
			t.Errorf("of %d jobs %d are held and %d were paid twice, want less than 2 %% and no more than 1 %% (or one)", p.jobs, p.held, p.twice)
		}
	}
	if p.lost == 0 {
		t.Error("no answer was lost: these faults prove nothing")
	}
}

func proofTable(proofs []*proof) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WAY\tKILLS\tANSWERS LOST\tFINISHED\tCALLS A FINISHED JOB\tKEYS PAID TWICE\tWASTED USD\tHELD\tA 1,000 CRASHES\tBOOKED LESS BILLED")
	for _, p := range proofs {
		if p == nil {
			continue // it has failed, and says so
		}
		off, held := ledger.Nano(p.off).String(), fmt.Sprintf("%.0f (%d)", 1000*float64(p.held)/float64(max(p.crashes, 1)), p.crashes)
		if !p.booked { // it keeps no books, and does not notice
			off, held = "-", "-"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2f\t%d\t%s\t%d\t%s\t%s\n", p.name, p.kills, p.lost, p.finished, float64(p.finishedCalls)/float64(max(p.finished, 1)),
			p.twice, ledger.Nano(p.wasted), p.held, held, off)
	}
	_ = t.Flush() // into memory
	return b.String()
}
