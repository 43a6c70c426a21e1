package openaifind_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// note is the message: a text to read.
type note struct{ Tenant, Doc string }

func (n note) JobKey() job.Key { return job.K(n.Tenant, "note.read", n.Doc) }

// reading is what a call makes of an answer.
type reading struct{ Text string }

// world is a provider, a ledger and a worker, on real sockets.
type world struct {
	*testing.T
	models *modelserver.Server
	ledger *memledger.Ledger
	queue  *memory.Queue
	call   job.Call[note, reading]
	handle func(ctx context.Context, j *job.Run, in note) (reading, error)
	told   chan string // what reconcilers found
}

func (w *world) client(a *job.Attempt) openai.Client {
	opts := []option.RequestOption{option.WithBaseURL(w.models.URL() + "/v1/"), option.WithAPIKey("k")}
	if a != nil {
		opts = append(opts, option.WithHTTPClient(a.HTTP()))
	}
	return openai.NewClient(opts...)
}

func newWorld(t *testing.T, timeout time.Duration, way func(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error)) *world {
	ms, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	w := &world{T: t, models: ms, ledger: memledger.New(), queue: memory.New(memory.Options{}), told: make(chan string, 100)}
	w.call = job.Call[note, reading]{Name: "read", Routes: []job.Route[note, reading]{{
		Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: timeout,
		Do: func(ctx context.Context, a *job.Attempt, in note) (reading, error) { return way(w, ctx, a, in) }}}}
	w.handle = func(ctx context.Context, j *job.Run, in note) (reading, error) { return w.call.Run(ctx, j, in) }
	return w
}

// run sends the message and starts a worker, which lives until the test ends.
func (w *world) run() {
	w.Helper()
	reg := new(job.Registry)
	job.Register(reg, job.Def[note, reading]{Name: "note.read", Uses: job.Uses(w.call), Handle: w.handle})
	cfg := consumer.Config{Source: w.queue.Source(), Store: w.ledger, Handlers: reg, Name: "w1", Workers: 2, Tick: 20 * time.Millisecond,
		SettleWindow: 2 * time.Second, Hold: time.Hour, Log: slog.New(slog.NewTextHandler(w.Output(), nil))}
	cfg.Trace.Reconciled = func(_, _, finding string) {
		if finding != "hold" {
			w.told <- finding
		}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	body, err := json.Marshal(note{"acme", "1"})
	if err != nil {
		w.Fatal(err)
	}
	if err := w.queue.Publish(w.Context(), broker.Message{Body: body, Attributes: map[string]string{consumer.Attribute: "note.read"}}); err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.Errorf("Run returned %v", err)
		}
	})
}

func (w *world) job() ledger.Job {
	w.Helper()
	j, err := w.ledger.Job(w.Context(), note{"acme", "1"}.JobKey().Ledger())
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// until waits for the job to be as ok says.
func (w *world) until(what string, ok func(ledger.Job) bool) ledger.Job {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		j, err := w.ledger.Job(w.Context(), note{"acme", "1"}.JobKey().Ledger())
		if err == nil && ok(j) {
			return j
		}
		if time.Now().After(end) {
			w.Fatalf("the job is never %s: %+v, %v", what, j, err)
		}
	}
}

func is(s ledger.State) func(ledger.Job) bool { return func(j ledger.Job) bool { return j.State == s } }

// found waits until a look had this finding, and returns those before it, each once.
func (w *world) found(want string) (before []string) {
	w.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case f := <-w.told:
			if f == want {
				return before
			}
			if !slices.Contains(before, f) {
				before = append(before, f)
			}
		case <-end:
			w.Fatalf("no look had the finding %s", want)
		}
	}
}

// paid compares the whole end state with one answer that was paid for and booked, and the bill's one line.
func (w *world) paid(j ledger.Job, class string) {
	w.Helper()
	bill := w.models.Bill()
	if len(bill) != 1 || w.models.Requests() != 1 {
		w.Fatalf("%d requests and a bill of %+v", w.models.Requests(), bill)
	}
	a := j.Attempts[0]
	if len(j.Attempts) != 1 || j.State != ledger.Done || j.OpenCalls != 0 || a.State != ledger.Received || a.Surplus || a.Evidence.Class != class {
		w.Errorf("the job is %s with %d open calls and the attempts %+v", j.State, j.OpenCalls, j.Attempts)
	}
	e, line := a.Evidence, bill[0]
	if e.ObjectID != line.ObjectID || e.Usage.In == nil || *e.Usage.In != line.In || *e.Usage.Cached != line.Cached || *e.Usage.Out != line.Out ||
		e.Cost == nil || int64(*e.Cost) != line.Price || j.Cost == nil || *j.Cost != *e.Cost || e.CostSource != "computed" {
		w.Errorf("on record %+v, and the job cost %v; on the bill %+v", e, j.Cost, line)
	}
	want := fmt.Sprintf(`{"Text":%q}`, modelserver.Summary(modelserver.Request{Prompt: "Read document 1"}))
	if j.Result == nil || string(j.Result.Body) != want {
		w.Errorf("the result is %+v, want %s", j.Result, want)
	}
	if d := w.queue.Depth(); d != (memory.Depth{}) {
		w.Errorf("the queue holds %+v", d)
	}
}

func params(a *job.Attempt, in note) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: a.Model(), Background: openai.Bool(true), Metadata: openaifind.Metadata(a),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Read document " + in.Doc)}}
}

func read(r *responses.Response) (reading, error) {
	if r.Status != responses.ResponseStatusCompleted {
		return reading{}, job.Failf("the answer is %s", r.Status)
	}
	return reading{r.OutputText()}, nil
}

// inBackground is a route as a user writes it: the SDK's own call, and nothing of ids, polls or retries.
func inBackground(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error) {
	c := w.client(a)
	r, err := c.Responses.New(ctx, params(a, in))
	if err != nil {
		return reading{}, err
	}
	return read(r)
}

// inEvents reads the same as a stream.
func inEvents(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error) {
	c := w.client(a)
	st := c.Responses.NewStreaming(ctx, params(a, in))
	defer st.Close()
	var r responses.Response
	for st.Next() {
		if e := st.Current(); e.Type == "response.completed" {
			r = e.Response
		}
	}
	if err := st.Err(); err != nil {
		return reading{}, err
	}
	return read(&r)
}

// The worker stops waiting for a response in background mode, whose id it knows, and the job is unknown. The
// reconciler finds that it runs, then that it is there, and the job is done with it; it is paid once.
func TestLostInBackground(t *testing.T) {
	w := newWorld(t, 600*time.Millisecond, inBackground)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.models.ScriptAny(modelserver.Fault{Hold: true, Lag: 3})
	w.run()
	j := w.until("unknown", is(ledger.Unknown))
	if a := j.Attempts[0]; a.Evidence.ObjectID != w.models.Bill()[0].ObjectID || a.Evidence.Class != "timeout" || a.Evidence.Cost != nil {
		t.Errorf("the unknown attempt has %+v", a.Evidence)
	}
	w.found("still_running")
	w.models.Release(w.models.Bill()[0].Key)
	if before := w.found("happened"); !slices.Equal(before, []string{"still_running"}) && before != nil {
		t.Errorf("before it was found: %v", before)
	}
	w.paid(w.until("done", is(ledger.Done)), "reconciled")
}

// So it is with a stream that is cut, of which the first event named the response.
func TestLostStream(t *testing.T) {
	w := newWorld(t, 2*time.Second, inEvents)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.models.ScriptAny(modelserver.Fault{Kind: modelserver.Cut, Events: 3, Lag: 2})
	w.run()
	if before := w.found("happened"); !slices.Equal(before, []string{"cannot_tell"}) {
		t.Errorf("before it was found: %v", before)
	}
	w.paid(w.until("done", is(ledger.Done)), "reconciled")
}

// A response that failed or was cancelled is over without an answer. That is believed after the settle window, and the
// call is sent again.
func TestFailedInBackground(t *testing.T) {
	for _, ends := range []string{"failed", "cancelled"} {
		t.Run(ends, func(t *testing.T) {
			w := newWorld(t, 2*time.Second, inBackground)
			c := w.client(nil)
			w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
			// The route times out on the first, which runs on; the second is answered.
			w.call.Routes[0].Timeout = 400 * time.Millisecond
			w.models.ScriptAny(modelserver.Fault{After: 800 * time.Millisecond, Ends: ends})
			w.run()
			w.found("too_early")
			w.found("failed")
			j := w.until("done", is(ledger.Done))
			var states []ledger.AttemptState
			for _, a := range j.Attempts {
				states = append(states, a.State)
			}
			if !slices.Equal(states, []ledger.AttemptState{ledger.FailedAttempt, ledger.Received}) || len(w.models.Bill()) != 2 {
				t.Errorf("attempts %+v, and %d lines on the bill", j.Attempts, len(w.models.Bill()))
			}
			if e := j.Attempts[0].Evidence; (e.Cost != nil) != (ends == "failed") || e.Cost != nil && int64(*e.Cost) != w.models.Bill()[0].Price {
				t.Errorf("%s: the cost on record is %v", ends, e.Cost)
			}
		})
	}
}

// An answer that is found and does not read was paid for: it is kept, the job fails by what its route makes of it, and
// no policy pays again.
func TestFoundAndNotRead(t *testing.T) {
	w := newWorld(t, 400*time.Millisecond, inBackground)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.call.OnUnknown = job.Replay(5)
	w.models.ScriptAny(modelserver.Fault{After: 800 * time.Millisecond, Ends: "incomplete"})
	w.run()
	w.found("happened")
	j := w.until("failed", is(ledger.Failed))
	if j.Error.Class != "permanent" || len(j.Attempts) != 1 || j.Attempts[0].State != ledger.Received || len(w.models.Bill()) != 1 || int64(*j.Cost) != w.models.Bill()[0].Price {
		t.Errorf("the job is %+v, and the bill %+v", j, w.models.Bill())
	}
	r, err := w.ledger.Answer(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID})
	var kept responses.Response
	if err != nil || json.Unmarshal(r.Body, &kept) != nil || kept.ID != w.models.Bill()[0].ObjectID {
		t.Errorf("kept is %s, %v", r.Body, err)
	}
}

// The answer to the create request itself is lost: there is no id, nobody can tell, and it is held.
func TestLostCreate(t *testing.T) {
	w := newWorld(t, 2*time.Second, inBackground)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.models.ScriptAny(modelserver.Fault{Kind: modelserver.Reset})
	w.run()
	w.found("cannot_tell")
	w.found("cannot_tell")
	if j := w.job(); j.State != ledger.Unknown || j.OpenCalls != 1 || len(j.Attempts) != 1 || w.models.Requests() != 1 {
		t.Errorf("the job is %+v after %d requests", j, w.models.Requests())
	}
}

// A chat completion that was lost is found in the store, when it is listed.
func TestLostCompletion(t *testing.T) {
	w := newWorld(t, 2*time.Second, func(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error) {
		c := w.client(a)
		r, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: a.Model(), Store: openai.Bool(true), Metadata: openaifind.Metadata(a),
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Read document " + in.Doc)}})
		if err != nil {
			return reading{}, err
		}
		return reading{r.Choices[0].Message.Content}, nil
	})
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Completion, func(r *openai.ChatCompletion) (reading, error) {
		return reading{r.Choices[0].Message.Content}, nil
	})
	w.models.ScriptAny(modelserver.Fault{Kind: modelserver.Cut, Lag: 3})
	w.run()
	if before := w.found("happened"); !slices.Equal(before, []string{"cannot_tell"}) {
		t.Errorf("before it was found: %v", before)
	}
	w.paid(w.until("done", is(ledger.Done)), "reconciled")
}
