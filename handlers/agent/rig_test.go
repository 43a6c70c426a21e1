package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const (
	message = `{"tenant":"acme","task":"1077","goal":"[key:the task] Work."}`
	taskKey = "acme:agent.task:1077"
)

// rig is one task, the workers that it meets, and a provider, under simulated time. The SDK and the model server are
// the real ones; pipes stand for the network, which a bubble must not have.
type rig struct {
	*mortal.World
	models *modelserver.Server
	set    provider.Settings
	opt    agent.Options

	mu    sync.Mutex
	asked []string       // the inputs of generations, in order
	turn  map[string]int // of a generation, by the client's id of the request
	used  map[string]int // runs of the tools' functions
}

// bubble runs a test with a model that asks for tools in each of some turns, and then answers.
func bubble(t *testing.T, turns [][]modelserver.ToolCall, f func(*rig)) {
	t.Helper()
	mortal.Bubble(t, func(w *mortal.World) {
		r := &rig{World: w, turn: map[string]int{}, used: map[string]int{}}
		var err error
		r.models, err = modelserver.Start(modelserver.Options{Listener: w.Net.Listen("models.test:80"), Latency: time.Second,
			CallTools: func(q modelserver.Request) []modelserver.ToolCall {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.asked = append(r.asked, q.Prompt)
				r.turn[q.ClientID()] = q.Turn
				if q.Turn > len(turns) {
					return nil
				}
				return turns[q.Turn-1]
			},
			Generate: func(modelserver.Request) string { return "Done." }})
		if err != nil {
			r.Fatal(err)
		}
		defer r.models.Close()
		w.Register = func(reg *job.Registry) { job.Register(reg, agent.New(r.set, r.opt)) }
		r.set = provider.Settings{
			Routes:    []provider.Route{{Name: "only", Provider: provider.Anthropic, Model: "claude-haiku-4-5", Timeout: 90 * time.Second}},
			Anthropic: provider.Account{BaseURL: r.models.URL(), APIKey: "k"},
		}
		r.opt = agent.Options{Tools: append(agent.Builtin(), r.counted("slow", 5*time.Second), r.counted("fast", time.Second))}
		f(r)
	})
}

// counted is a free tool that takes its time.
func (r *rig) counted(name string, took time.Duration) agent.Tool {
	return agent.Tool{Name: name, Func: func(ctx context.Context, u agent.Use) (string, error) {
		r.mu.Lock()
		r.used[name+u.Arguments]++
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(took):
			return name + " says " + u.Arguments, nil
		}
	}}
}

// uses counts the runs of the tools' functions so far.
func (r *rig) uses() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.used)
}

func (r *rig) send() { r.Send(agent.Name, message) }

func (r *rig) job() ledger.Job {
	r.Helper()
	j, err := r.Ledger.Job(context.Background(), ledger.Key{Tenant: "acme", Text: taskKey})
	if err != nil {
		r.Fatal(err)
	}
	return j
}

// want compares the whole end state: of the job, its attempts (how many of which call in which state), and the bill,
// which has each input of a turn once.
func (r *rig) want(state ledger.State, attempts map[string]int, bill int) ledger.Job {
	r.Helper()
	j := r.job()
	got := map[string]int{}
	for _, a := range j.Attempts {
		got[fmt.Sprint(a.Call.Name, " ", a.State)]++
	}
	if j.State != state || !maps.Equal(got, attempts) {
		r.Errorf("the job is %s (error %v) with %v, want %s with %v", j.State, j.Error, got, state, attempts)
	}
	if state == ledger.Done && (j.Result == nil || string(j.Result.Body) != `{"answer":"Done."}`) {
		r.Errorf("the result is %+v", j.Result)
	}
	r.once(bill)
	if d := r.Queue.Depth(); d != (memory.Depth{}) || len(r.Queue.DeadLetters()) != 0 {
		r.Errorf("the queue holds %+v, and %d dead letters", d, len(r.Queue.DeadLetters()))
	}
	return j
}

// once wants so many lines on the bill, and no two for one input.
func (r *rig) once(bill int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	inputs := slices.Compact(slices.Sorted(slices.Values(r.asked)))
	if lines := len(r.models.Bill()); lines != bill || len(r.asked) != lines || len(inputs) != lines {
		r.Errorf("%d lines on the bill, of %d inputs; want %d", lines, len(inputs), bill)
	}
}

// resolve says of every open call what happened to it: the provider's log is the bill.
func (r *rig) resolve(turns [][]modelserver.ToolCall) {
	r.Helper()
	j := r.job()
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		if a.Call.Name != "turn" {
			r.Errorf("a use of a tool is held: %+v", a)
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "not in the provider's log"}
		if n := r.turn[a.ClientRequestID]; n > 0 {
			e.State, e.Reason = ledger.Received, "found in the provider's log"
			e.Response = &ledger.Response{Codec: "json", Body: []byte(`{"text":"Done."}`)}
			if n <= len(turns) {
				e.Response.Body = fmt.Appendf(nil, `{"tools":[{"name":%q,"arguments":%q},{"name":%q,"arguments":%q}]}`,
					turns[n-1][0].Name, turns[n-1][0].Arguments, turns[n-1][1].Name, turns[n-1][1].Arguments)
			}
		}
		if _, err := r.Ledger.Settle(r.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
			r.Fatal(err)
		}
	}
}
