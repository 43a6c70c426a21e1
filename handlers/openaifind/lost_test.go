package openaifind_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

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
	t.Parallel()
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
	w.acked()
}

// A worker dies while it follows a response. Another finds the attempt with its id, and the answer by that.
func TestKilledInBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2*time.Second, inBackground)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.models.ScriptAny(modelserver.Fault{Hold: true})
	dead := &severed{Store: w.ledger}
	kill := w.work("dead", dead)
	w.send()
	w.until("running with an id", func(j ledger.Job) bool {
		return j.State == ledger.Running && len(j.Attempts) == 1 && j.Attempts[0].Evidence.ObjectID != ""
	})
	dead.cut.Store(true)
	kill()
	w.models.Release(w.models.Bill()[0].Key)
	w.work("alive", w.ledger)
	w.found("happened")
	j := w.until("done", is(ledger.Done))
	w.paid(j, "reconciled")
	if h := j.History; !slices.ContainsFunc(h, func(e ledger.Event) bool { return e.To == ledger.Unknown }) {
		t.Errorf("the job was never unknown: %+v", h)
	}
}

// So it is with a stream that is cut, of which the first event named the response.
func TestLostStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2*time.Second, inEvents)
	c := w.client(nil)
	w.call.Reconcile = openaifind.Reconcile(&c, openaifind.Response, read)
	w.models.ScriptAny(modelserver.Fault{Kind: modelserver.Cut, Events: 3, Lag: 2})
	w.run()
	if before := w.found("happened"); !slices.Equal(before, []string{"cannot_tell"}) {
		t.Errorf("before it was found: %v", before)
	}
	w.paid(w.until("done", is(ledger.Done)), "reconciled")
	w.acked()
}

// A response that failed or was cancelled is over without an answer. That is believed after the settle window, and the
// call is sent again.
func TestFailedInBackground(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	w.acked()
}
