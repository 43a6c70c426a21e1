package ledgertest

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/paidonce/paidonce/ledger"
)

// bodyCases: bodies of every size come back whole, or not at all.
var bodyCases = []testCase{
	{"large results", "a result is cut, or a duplicate of its job reads all of it", largeResults},
	{"the verdict alone", "a duplicate that nobody waits for reads a result, or is told something else than others", verdictOnly},
	{"large answers", "a paid answer is cut, or lost when it is recorded twice", largeAnswers},
	{"large inputs", "a job with a large input cannot be run from the ledger", largeInputs},
	{"large inputs and lost replies", "a claim whose reply was lost leaves the job without its input for ever", largeInputsAgain},
	{"the largest bodies", "a body that is too large takes the ledger down, or is kept in part", largestBodies},
	{"bodies like references", "what a user wrote is taken for a place where something else lies", likeReferences},
	{"purge of large bodies", "chunks are kept for ever", purgeLarge},
	{"damaged bodies", "a body that lost a part is handed out as if it were whole", damagedBodies},
}

// Chunks are the rows in which a ledger keeps what is too large for one row.
type Chunks struct {
	// Count is how many there are.
	Count func() int
	// Lose deletes one that belongs to the job, and is not its only one.
	Lose func(k ledger.Key)
	// Spoil changes a byte of one that belongs to the job.
	Spoil func(k ledger.Key)
}

// sizes are those at which something changes.
var sizes = []int{0, 1, 255 << 10, ledger.InlineBody, ledger.InlineBody + 1, 2 * ledger.InlineBody, 700_001}

// noise is a body of so many bytes, the same for the same size.
func noise(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)})
	r.Read(b) // never fails
	return b
}

func largeResults(e *env) {
	for _, size := range sizes {
		j, body := e.run(ledger.NewID().String()), noise(size)
		res := ledger.Result{ID: ledger.NewID(), Body: body, Schema: "x"}
		e.is("complete", e.Store.Complete(e.Context(), j.lease, res), nil)
		e.is("complete again, as after a lost reply", e.Store.Complete(e.Context(), j.lease, res), nil)
		if got := e.sound(j.key); !bytes.Equal(got.Result.Body, body) {
			e.Errorf("a result of %d bytes does not read as it is: %d bytes", size, len(got.Result.Body))
		}
		want := body
		if size > ledger.InlineBody-e.Room {
			want = nil
		}
		if c := j.verdict(ledger.Saved); c.Result == nil || c.Result.ID != res.ID || c.Result.Schema != "x" || !bytes.Equal(c.Result.Body, want) {
			e.Errorf("a claim is told of a result of %d bytes as %+.80v", size, c.Result)
		}
	}
}

// verdictOnly: whoever does not want the result is told all else that others are told.
func verdictOnly(e *env) {
	large := e.run("large")
	e.is("complete", e.Store.Complete(e.Context(), large.lease, ledger.Result{ID: ledger.NewID(), Body: noise(700_001)}), nil)
	paid, purged := e.finished("paid"), e.finished("purged")
	e.AgeRow(purged.key, pastResult)
	e.purge(kept)
	for _, j := range []*job{large, paid, purged, e.failed("failed"), e.cancelled("cancelled"), e.run("busy")} {
		r := j.req
		r.Token = ledger.NewID()
		want := j.claim(r)
		want.Result, want.RetryIn = nil, 0
		r.Token, r.VerdictOnly = ledger.NewID(), true
		j.unchanged("a claim for the verdict alone", func() {
			got := j.claim(r)
			got.RetryIn = 0
			if !reflect.DeepEqual(got, want) {
				e.Errorf("%s: told %+v, want %+v", j.key, got, want)
			}
		})
		r.InputHash[0]++
		if got := j.claim(r); got.Verdict != ledger.Mismatch {
			e.Errorf("%s: another input is told %s", j.key, got.Verdict)
		}
	}
	purged.verdict(ledger.Purged) // for whoever wants it
	fresh := e.request("fresh")
	fresh.VerdictOnly = true
	e.start(fresh).row(row{State: ledger.Running, Runs: 1, Fence: 1})
}

func largeAnswers(e *env) {
	for _, size := range sizes {
		j := e.run(ledger.NewID().String())
		id, ev := j.send("extract"), answer(cent)
		ev.Response.Body = noise(size)
		_, err := e.Store.Answer(e.Context(), id)
		e.is("read the answer of an open attempt", err, ledger.ErrNotFound)
		e.settle(id, ev)
		e.settle(id, ev) // as after a lost reply
		j.played("extract", id, ev)
		got, err := e.Store.Answer(e.Context(), id)
		e.is("read the answer", err, nil)
		if got.Codec != ev.Response.Codec || !bytes.Equal(got.Body, ev.Response.Body) {
			e.Errorf("an answer of %d bytes does not read as it is: %s, %d bytes", size, got.Codec, len(got.Body))
		}
		other := id
		other.Tenant = "other"
		_, err = e.Store.Answer(e.Context(), other)
		e.is("read the answer as another tenant's", err, ledger.ErrNotFound)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: "received$0.01"})
	}
}

// withInput asks for a job with an input of so many bytes.
func (e *env) withInput(size int) ledger.Request {
	r := e.request(ledger.NewID().String())
	r.Input = noise(size)
	return r
}

// listed is the job's place on the list of those that are due.
func (j *job) listed() *ledger.Stored {
	j.Helper()
	due, err := j.Store.Due(j.Context(), 1000, long)
	if err != nil {
		j.Fatalf("due: %v", err)
	}
	if i := slices.IndexFunc(due, func(s ledger.Stored) bool { return s.Key == j.key }); i >= 0 {
		return &due[i]
	}
	return nil
}

func largeInputs(e *env) {
	for _, size := range []int{ledger.InlineInput, ledger.InlineInput + 1, ledger.InlineBody, ledger.InlineBody + 1, 700_001} {
		r := e.withInput(size)
		r.Carrier = ledger.CarriedByLedger
		c := e.claim(r)
		if c.Verdict != ledger.Run || c.Carrier != ledger.CarriedByLedger {
			e.Fatalf("an input of %d bytes: %s, carried by %s", size, c.Verdict, c.Carrier)
		}
		j := &job{env: e, key: r.Key, req: r, lease: c.Lease}
		j.release(outcome(), ledger.Ready)
		if got := j.listed(); got == nil || !bytes.Equal(got.Input, r.Input) || got.Fault != nil {
			e.Fatalf("an input of %d bytes is listed as due as %.80v", size, got)
		}
		j.again()
		lost := j.send("extract")
		j.release(outcome(), ledger.Unknown)
		for _, a := range e.adopt(e.worker) {
			if a.Lease.Key == j.key && (!bytes.Equal(a.Input, r.Input) || a.Fault != nil) {
				e.Errorf("an input of %d bytes is told to the reconciler as %d bytes, %v", size, len(a.Input), a.Fault)
			}
		}
		e.settle(lost, no(ledger.NotSent))
		j.again().complete()
	}
	// Carried by the broker, it can be handed over.
	j := e.start(e.withInput(100_000))
	e.is("carry", e.Store.Carry(e.Context(), j.lease), nil)
	j.release(outcome(), ledger.Ready)
	if got := j.listed(); got == nil || !bytes.Equal(got.Input, j.req.Input) {
		e.Errorf("a large input that the ledger took over is listed as %.80v", got)
	}
}

// largeInputsAgain: whoever repeats a claim, or claims later, stores the input that is not there.
func largeInputsAgain(e *env) {
	r := e.withInput(100_000)
	want := r.Input
	r.Input = nil // as if the first claim had died before it stored it
	j := e.start(r)
	e.is("carry", e.Store.Carry(e.Context(), j.lease), ledger.ErrNoInput)
	j.req.Input = want
	if c := e.claim(j.req); c.Verdict != ledger.Run || c.Lease.Fence != j.lease.Fence || c.Carrier != ledger.CarriedByBroker {
		e.Fatalf("the repeated claim: %+v", c)
	}
	e.is("carry", e.Store.Carry(e.Context(), j.lease), nil)
	j.release(outcome(), ledger.Ready)
	if got := j.listed(); got == nil || !bytes.Equal(got.Input, want) {
		e.Errorf("listed as %.80v", got)
	}
	later := e.withInput(100_000)
	want, later.Input = later.Input, nil
	k := e.start(later)
	k.release(outcome(), ledger.Ready)
	k.req.Input, k.req.Carrier = want, ledger.CarriedByLedger
	k.again().release(outcome(), ledger.Ready)
	if got := k.listed(); got == nil || !bytes.Equal(got.Input, want) {
		e.Errorf("listed as %.80v", got)
	}
}

// largestBodies: the limit itself, once, and one byte more.
func largestBodies(e *env) {
	body := make([]byte, ledger.MaxBody+1)
	for i := range body {
		body[i] = byte(i >> 18) // each chunk its own byte
	}
	j := e.run("largest")
	res := ledger.Result{ID: ledger.NewID(), Body: body}
	id, ev := j.send("extract"), answer(cent)
	ev.Response.Body = body
	j.unchanged("what is too large", func() {
		for _, err := range []error{e.Store.Complete(e.Context(), j.lease, res), second(e.Store.Settle(e.Context(), id, ev))} {
			e.is("a body that is too large", err, ledger.ErrTooLarge)
			e.is("a body that is too large", err, ledger.ErrRequest)
		}
	})
	ev.Response.Body = body[:1]
	e.settle(id, ev)
	res.Body = body[:ledger.MaxBody-e.Room]
	e.is("complete", e.Store.Complete(e.Context(), j.lease, res), nil)
	if got := e.read(j.key); got.Result == nil || !bytes.Equal(got.Result.Body, res.Body) {
		e.Errorf("a result of %d bytes does not read as it is", len(res.Body))
	}
	r := e.request("too large")
	r.Input = body
	k := e.start(r)
	if e.read(r.Key).InputKept {
		e.Error("an input that is too large is kept")
	}
	e.is("carry", e.Store.Carry(e.Context(), k.lease), ledger.ErrNoInput)
}

func second[T any](_ T, err error) error { return err }

// likeReferences stores what a row of a large body holds.
func likeReferences(e *env) {
	like, _ := ledger.Split(noise(ledger.InlineBody+1), ledger.InlineBody)
	r := e.request("like")
	r.Input = like
	j := e.start(r)
	e.is("carry", e.Store.Carry(e.Context(), j.lease), nil)
	j.release(outcome(), ledger.Ready)
	if got := j.listed(); got == nil || !bytes.Equal(got.Input, like) {
		e.Fatalf("the input is listed as %+v", got)
	}
	j.again()
	id, ev := j.send("extract"), answer(cent)
	ev.Response.Body = like
	e.settle(id, ev)
	j.played("extract", id, ev)
	e.is("complete", e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: like}), nil)
	if got := e.read(j.key); got.Result == nil || !bytes.Equal(got.Result.Body, like) {
		e.Errorf("the result reads as %+v", got.Result)
	}
}

// finishedLarge makes a job that is done and had large bodies of all kinds.
func (e *env) finishedLarge() (*job, ledger.AttemptID) {
	e.Helper()
	j := e.start(e.withInput(300_000))
	id, ev := j.send("extract"), answer(cent)
	ev.Response.Body = noise(600_000)
	e.settle(id, ev)
	e.is("complete", e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: noise(700_001), Used: []ledger.ID{id.ID}}), nil)
	return j, id
}

func purgeLarge(e *env) {
	j, id := e.finishedLarge()
	// A commit that is refused may leave chunks, which go with those of the job.
	err := e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: noise(500_000)})
	e.is("another commit", err, ledger.ErrLost)
	e.AgeRow(j.key, pastResult)
	e.purge(kept)
	if got := e.read(j.key); !got.Purged {
		e.Errorf("after the purge: %+v", got)
	}
	_, err = e.Store.Answer(e.Context(), id)
	e.is("read an answer that is purged", err, ledger.ErrNotFound)
	if e.Chunks != nil {
		if n := e.Chunks.Count(); n != 0 {
			e.Errorf("%d chunks are left", n)
		}
	}
}

func damagedBodies(e *env) {
	if e.Chunks == nil {
		return // it keeps bodies whole
	}
	for name, damage := range map[string]func(ledger.Key){"a lost chunk": e.Chunks.Lose, "a spoiled chunk": e.Chunks.Spoil} {
		j := e.run(ledger.NewID().String())
		e.is("complete", e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: noise(700_001)}), nil)
		damage(j.key)
		_, err := e.Store.Job(e.Context(), j.key)
		e.is(name+" of a result", err, ledger.ErrDamaged)
		j.verdict(ledger.Saved)

		j = e.run(ledger.NewID().String())
		id, ev := j.send("extract"), answer(cent)
		ev.Response.Body = noise(600_000)
		e.settle(id, ev)
		damage(j.key)
		_, err = e.Store.Answer(e.Context(), id)
		e.is(name+" of an answer", err, ledger.ErrDamaged)
		_, err = e.Store.Look(e.Context(), j.lease, ledger.CallRef{Name: "extract"})
		e.is(name+" of an answer that a run looks for", err, ledger.ErrDamaged)

		j = e.start(e.withInput(300_000))
		j.send("extract")
		damage(j.key)
		e.AgeAttempts(j.key, long)
		j.release(outcome(), ledger.Unknown)
		for _, a := range e.adopt(e.worker) {
			if a.Lease.Key == j.key {
				e.is(name+" of an input, told to a reconciler", a.Fault, ledger.ErrDamaged)
				e.is("replay", e.Store.Replay(e.Context(), a.Lease, ledger.ReplayPolicy{Max: 1}), nil)
			}
		}
		got := j.listed()
		if got == nil || got.Input != nil {
			e.Fatalf("%s of an input: listed as %+v", name, got)
		}
		e.is(name+" of an input", got.Fault, ledger.ErrDamaged)
	}
}
