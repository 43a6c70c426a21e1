package handlers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const task = `{"tenant":"acme","task":"1077","goal":"Is 6 * 7 in the list?\nlist: 41, 42, 43"}`

// script is a model that asks for tools in each of some turns, and then answers.
func script(turns ...[]modelserver.ToolCall) modelserver.Options {
	return modelserver.Options{
		CallTools: func(r modelserver.Request) []modelserver.ToolCall {
			if r.Turn > len(turns) {
				return nil
			}
			return turns[r.Turn-1]
		},
		// What it was told is the end of the prompt.
		Generate: func(r modelserver.Request) string { return "I was told:" + r.Prompt[strings.Index(r.Prompt, "43")+2:] },
	}
}

var (
	product = modelserver.ToolCall{Name: "calculate", Arguments: `{"expression": "6 * 7"}`}
	again   = modelserver.ToolCall{Name: "calculate", Arguments: `{ "expression":"6 * 7" }`} // the same in other words
	search  = modelserver.ToolCall{Name: "search_goal", Arguments: `{"words": "list 42"}`}
	double  = modelserver.ToolCall{Name: "calculate", Arguments: `{"expression": "42 * 2"}`}
	missing = modelserver.ToolCall{Name: "browse", Arguments: `{"url": "https://h"}`}
	garbled = modelserver.ToolCall{Name: "calculate", Arguments: `{"expression": 6}`}
)

// ends are the attempts of a job: of which call, and what became of each.
func ends(j ledger.Job) []string {
	var all []string
	for _, a := range j.Attempts {
		all = append(all, fmt.Sprint(a.Call.Name, " ", a.State))
	}
	slices.Sort(all)
	return all
}

func want(turns, tools int) []string {
	return slices.Concat(slices.Repeat([]string{"tool received"}, tools), slices.Repeat([]string{"turn received"}, turns))
}

// The model is told what its tools said, in the order in which it asked; one that it has asked before is
// not used again. All of it is on record, the turns at their prices and the tools at nothing.
func TestAgent(t *testing.T) {
	for _, via := range provider.Names() {
		b := benchOf(t, script([]modelserver.ToolCall{product, search, again}, []modelserver.ToolCall{double, missing, garbled, product}), agent.Options{}, via)
		out, err := b.run(agent.Name, task)
		if err != nil {
			t.Fatal(err)
		}
		const told = `"answer":"I was told:\n42\n2: list: 41, 42, 43\n\n42\n84\nerror: there is no tool \"browse\"\nerror: the arguments of calculate do not fit its schema:`
		if !strings.Contains(out, told) || !strings.HasSuffix(out, `\n42"}`) {
			t.Errorf("%s: the result is\n%s, want\n%s", via, out, told)
		}
		j := b.job(agent.Name, task)
		if got := ends(j); j.State != ledger.Done || !slices.Equal(got, want(3, 5)) || len(b.models.Bill()) != 3 {
			t.Errorf("%s: job %s with attempts %v, and %d lines on the bill", via, j.State, got, len(b.models.Bill()))
		}
		for _, a := range j.Attempts {
			if a.Call.Name == "tool" && (a.Evidence.Cost == nil || *a.Evidence.Cost != 0 || a.Provider != "local") {
				t.Errorf("%s: a tool has on record %+v", via, a)
			}
		}
	}
}

// A task that goes on with another provider takes its conversation along, also what only the first one would
// have let pass.
func TestAgentChangesProviders(t *testing.T) {
	half := modelserver.ToolCall{Name: "calculate", Arguments: `{"expression": "6 *`}
	for _, via := range [][]string{{provider.OpenAI, provider.Anthropic}, {provider.Anthropic, provider.OpenAI}} {
		b := benchOf(t, script([]modelserver.ToolCall{product, half}, []modelserver.ToolCall{double}), agent.Options{}, via...)
		b.models.Script("the job", modelserver.Fault{}, modelserver.Fault{Kind: modelserver.Forbidden})
		out, err := b.run(agent.Name, task)
		if err != nil || !strings.Contains(out, `I was told:\n42\nerror: the arguments`) || !strings.HasSuffix(out, `\n84"}`) {
			t.Errorf("%v: %s, %v", via, out, err)
		}
		var by []string
		for _, l := range b.models.Bill() {
			by = append(by, l.Provider)
		}
		if !slices.Equal(by, []string{via[0], via[1], via[0]}) {
			t.Errorf("%v: the bill is of %v", via, by)
		}
	}
}

// An answer that was lost in the middle holds the task, with what it has so far. What becomes known of it is the
// turn's answer: the task goes on from there.
func TestAgentLostAnswer(t *testing.T) {
	for _, via := range provider.Names() {
		b := benchOf(t, script([]modelserver.ToolCall{product, search}, []modelserver.ToolCall{double}), agent.Options{}, via)
		b.models.Script("the job", modelserver.Fault{}, modelserver.Fault{Kind: modelserver.Reset})
		if _, err := b.run(agent.Name, task); !errors.Is(err, job.ErrHeld) {
			t.Fatalf("%s: error %v, want ErrHeld", via, err)
		}
		j := b.job(agent.Name, task)
		if got := ends(j); j.State != ledger.Unknown || !slices.Equal(got, append(want(1, 2), "turn sent")) {
			t.Fatalf("%s: job %s with attempts %v", via, j.State, got)
		}
		lost := j.Attempts[len(j.Attempts)-1]
		h, _ := b.reg.Lookup(agent.Name)
		turn, _ := h.Call("turn")
		found, err := turn.Reconcile(t.Context(), job.Open{Key: j.Key, Attempt: lost.ID, ClientRequestID: lost.ClientRequestID, Route: "only", Model: "a-model"})
		e := ledger.Evidence{State: ledger.Received, By: ledger.ByReconciler, Response: found.Response}
		switch {
		case via == provider.OpenAI && (err != nil || found.Finding != job.Happened):
			t.Fatalf("%s: %s, %v", via, found.Finding, err)
		case via == provider.Anthropic && (err != nil || found.Finding != job.CannotTell):
			t.Fatalf("%s: %s, %v", via, found.Finding, err)
		case via == provider.Anthropic: // a person says what it was
			e.By, e.Who, e.Reason = ledger.ByPerson, "ann", "found in the provider's log"
			e.Response = &ledger.Response{Codec: "json", Body: []byte(`{"text":"","tools":[{"name":"calculate","arguments":"{\"expression\":\"42*2\"}"}]}`)}
		}
		if err := turn.Reads(e.Response.Body); err != nil {
			t.Errorf("%s: the answer does not read: %v", via, err)
		}
		if _, err := b.ledger.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: lost.ID}, e); err != nil {
			t.Fatal(err)
		}
		out, err := b.run(agent.Name, task)
		if err != nil || !strings.HasSuffix(out, `\n84"}`) {
			t.Errorf("%s: result %s, %v", via, out, err)
		}
		if got := ends(b.job(agent.Name, task)); !slices.Equal(got, want(3, 3)) || len(b.models.Bill()) != 3 {
			t.Errorf("%s: attempts %v, and %d lines on the bill", via, got, len(b.models.Bill()))
		}
	}
}

// A model that never comes to an end is stopped, and its last wishes are not carried out.
func TestAgentTurnLimit(t *testing.T) {
	endless := modelserver.Options{CallTools: func(r modelserver.Request) []modelserver.ToolCall {
		return []modelserver.ToolCall{{Name: "calculate", Arguments: fmt.Sprintf(`{"expression":"%d"}`, r.Turn)}}
	}}
	for most, turns := range map[int]int{3: 3, 0: agent.DefaultMaxTurns} {
		b := benchOf(t, endless, agent.Options{MaxTurns: most}, provider.OpenAI)
		_, err := b.run(agent.Name, task)
		if class, _ := job.ClassOf(err); class != job.Permanent || !strings.Contains(err.Error(), "PO359") {
			t.Errorf("max turns %d: error %v (%s), want a permanent PO359", most, err, class)
		}
		if got := ends(b.job(agent.Name, task)); !slices.Equal(got, want(turns, turns-1)) || len(b.models.Bill()) != turns {
			t.Errorf("max turns %d: attempts %v, and %d lines on the bill", most, got, len(b.models.Bill()))
		}
	}
}
