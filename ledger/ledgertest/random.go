package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var randomCases = []testCase{
	{"random operations", "the ledger does not do what the table of transitions says", randomOperations},
}

// seedVariable names an environment variable with one seed to run, as a failure printed it.
const seedVariable = "LEDGERTEST_SEED"

// randomOperations drives the ledger and a memory ledger with the same
// operations, and compares every answer and every row. Each seed has a tenant and workers
// of its own, and ends with all of its jobs ended.
func randomOperations(e *env) {
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			e.Fatalf("%s: %v", seedVariable, err)
		}
		newWorld(e, seed).play(60)
		return
	}
	for seed := range uint64(cmp.Or(e.Seeds, 600)) {
		newWorld(e, seed).play(60)
		if e.Failed() {
			return
		}
	}
}

// world is what one seed plays with: the ledger under test and the oracle.
type world struct {
	*env
	*rand.Rand
	seed     uint64
	tenant   string
	sides    [2]*Harness
	trace    []string
	workers  []ledger.WorkerID // all that ever joined
	open     map[ledger.WorkerID]bool
	lapsed   map[ledger.WorkerID]bool
	jobs     []*played
	adoption ledger.ID // token of the last adoption
}

// played is one job of a world. What differs between the two ledgers is kept for both.
type played struct {
	req      ledger.Request
	made     bool // the row exists
	ids      [2]int64
	leases   [][2]ledger.Lease
	tokens   []ledger.ID
	attempts []ledger.Attempt
	results  []ledger.Result
}

func newWorld(e *env, seed uint64) *world {
	w := &world{env: e, Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, tenant: fmt.Sprint("seed ", seed),
		sides: [2]*Harness{e.Harness, Memory(e.T)}, open: map[ledger.WorkerID]bool{}, lapsed: map[ledger.WorkerID]bool{}}
	for i := range 4 {
		r := e.request(fmt.Sprint(i))
		r.Key.Tenant, r.Action = w.tenant, fmt.Sprintf("action %d of %d", i%2, seed)
		if i == 2 {
			r.Input = nil
		}
		w.jobs = append(w.jobs, &played{req: r})
	}
	w.join(0)
	w.join(1)
	return w
}

// play makes n random operations, and then ends all that is open.
func (w *world) play(n int) {
	w.Helper()
	ops := []struct {
		weight int
		op     func(*played)
		states []ledger.State // of the job, mostly; "": there is no row yet
	}{
		{12, w.opClaim, []ledger.State{"", ledger.Ready}},
		{5, w.opClaim, nil},
		{12, w.opSend, []ledger.State{ledger.Running}},
		{10, w.opSettle, []ledger.State{ledger.Running, ledger.Unknown}},
		{4, w.opSettle, nil},
		{4, w.opComplete, []ledger.State{ledger.Running}},
		{4, w.opApply, []ledger.State{ledger.Running}},
		{7, w.opRelease, []ledger.State{ledger.Running}},
		{2, w.opCarry, []ledger.State{ledger.Running}},
		{5, w.opReplay, []ledger.State{ledger.Running, ledger.Unknown}},
		{2, w.opLook, nil},
		{2, w.opWorker, nil},
		{3, w.opLapseRun, []ledger.State{ledger.Running}},
		{4, w.opDue, []ledger.State{ledger.Ready, ledger.Unknown}},
		{2, w.opAge, nil},
		{3, w.opSweep, nil},
		{2, w.opList, nil},
		{2, w.opCosts, nil},
		{1, w.opCount, nil},
		{4, w.opAdopt, nil},
		{2, w.opResolve, nil},
		{2, w.opResolve, []ledger.State{ledger.Unknown}},
		{4, w.opReopen, []ledger.State{ledger.Done, ledger.Failed, ledger.Cancelled}},
	}
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	for range n {
		at := w.IntN(total)
		for _, o := range ops {
			if at -= o.weight; at < 0 {
				o.op(w.job(o.states))
				break
			}
		}
	}
	w.end()
}

// job is any job, but mostly one in one of the states if there is one.
func (w *world) job(states []ledger.State) *played {
	w.Helper()
	if len(states) > 0 && !w.chance(5) {
		for _, i := range w.Perm(len(w.jobs)) {
			j, state := w.jobs[i], ledger.State("")
			if j.made {
				state = w.state(j).State
			}
			if slices.Contains(states, state) {
				return j
			}
		}
	}
	return w.jobs[w.IntN(len(w.jobs))]
}

// end brings every job to a terminal state, so that it does not reach into the next seed.
func (w *world) end() {
	w.Helper()
	for _, id := range w.workers {
		w.both(fmt.Sprint("leave ", id), nil, func(_ int, h *Harness) string { return word(h.Store.Leave(w.Context(), id)) })
	}
	for range 2 {
		for _, j := range w.jobs {
			w.resolve(j, ledger.Cancel, 0)
		}
		w.opSweep(nil)
	}
	w.opCosts(nil)
	for _, j := range w.jobs {
		if j.made && !w.state(j).State.Terminal() {
			w.fail("at the end a job is %s", w.state(j).State)
		}
	}
	if m, want := w.sides[0].Marks(), w.sides[1].Marks(); len(m) < len(want) || !slices.Equal(sorted(m[len(m)-len(want):]), sorted(want)) && !containsAll(m, want) {
		w.fail("the user's work that is committed: %v, want %v among it", m, want)
	}
}

func containsAll(have, want []string) bool {
	for _, s := range want {
		if !slices.Contains(have, s) {
			return false
		}
	}
	return true
}

// both makes one operation on both ledgers, compares the answers and, if it was
// about a job, the rows.
func (w *world) both(what string, j *played, do func(i int, h *Harness) string) string {
	w.Helper()
	var got [2]string
	for i, h := range w.sides {
		got[i] = do(i, h)
	}
	w.trace = append(w.trace, what+"\n      "+got[1])
	if got[0] != got[1] {
		w.fail("%s\n got %s\nwant %s", what, got[0], got[1])
	}
	if j != nil {
		w.same(j)
	}
	return got[1]
}

// same compares the job's rows.
func (w *world) same(j *played) {
	w.Helper()
	var text [2]string
	for i, h := range w.sides {
		row, err := h.Store.Job(w.Context(), j.req.Key)
		if errors.Is(err, ledger.ErrNotFound) {
			text[i] = "no row"
			continue
		}
		if err != nil {
			w.fail("read: %v", err)
		}
		for _, wrong := range append(append(faults(row), moneyFaults(row)...), historyFaults(row)...) {
			w.fail("ledger %d: %s", i, wrong)
		}
		text[i] = rowText(row)
	}
	if text[0] != text[1] {
		w.fail("the rows differ\n got %s\nwant %s", text[0], text[1])
	}
}

// rowText prints all of a row that two ledgers have in common.
func rowText(j ledger.Job) string {
	var b strings.Builder
	b.WriteString(summary(j))
	if j.State == ledger.Ready || j.State == ledger.Unknown {
		fmt.Fprintf(&b, "\n  due later: %v", time.Until(j.NextAt) > 10*time.Minute)
	}
	b.WriteString("\n  ")
	for _, ev := range j.History {
		if ev.From != ev.To {
			fmt.Fprintf(&b, "%s ", ev.To)
		}
		if ev.Looks > 0 {
			fmt.Fprintf(&b, "%d looks by %s: %s, ", ev.Looks, ev.Actor, ev.Reason)
		}
	}
	b.WriteString("\n  " + linksText(j))
	return b.String()
}

// state is the job as the oracle has it.
func (w *world) state(j *played) ledger.Job {
	w.Helper()
	row, err := w.sides[1].Store.Job(w.Context(), j.req.Key)
	if err != nil {
		w.fail("read: %v", err)
	}
	return row
}

func (w *world) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s=%d\n%s\n%s", seedVariable, w.seed, strings.Join(w.trace, "\n"), fmt.Sprintf(format, args...))
}

// chance reports true once in n times.
func (w *world) chance(n int) bool { return w.IntN(n) == 0 }

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// word is the part of an error that all ledgers have in common.
func word(err error) string {
	for _, known := range []error{ledger.ErrLost, ledger.ErrCancelled, ledger.ErrBudget, ledger.ErrDayBudget, ledger.ErrCalls, ledger.ErrLifetime, ledger.ErrLate, ledger.ErrRepeated, ledger.ErrOpen,
		ledger.ErrClosed, ledger.ErrNotFound, ledger.ErrState, ledger.ErrTooEarly, ledger.ErrNoInput, ledger.ErrDoublePay, ledger.ErrHook, ledger.ErrRequest} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

func later(d time.Duration) string {
	if d > 10*time.Minute {
		return "later"
	}
	return "now"
}
