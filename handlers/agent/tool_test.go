package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

func handler(t *testing.T, s provider.Settings, o Options) *job.Handler {
	t.Helper()
	var reg job.Registry
	job.Register(&reg, New(s, o))
	h, ok := reg.Lookup("agent.task")
	if !ok {
		t.Fatalf("agent.task is not registered; there are %v", reg.Names())
	}
	return h
}

func TestKey(t *testing.T) {
	h := handler(t, provider.Settings{}, Options{})
	for _, c := range []struct{ body, key, fault string }{
		{`{"tenant":"acme","task":"1077","goal":"g"}`, "acme:agent.task:1077", ""},
		{`{"tenant":"a:b","task":"v1","goal":"g"}`, "a%3Ab:agent.task:%761", ""},
		{`{"task":"1077","goal":"g"}`, "", "tenant"},
		{`{"tenant":"acme","goal":"g"}`, "", "entity"},
		{`{"tenant":"acme","task":1077,"goal":"g"}`, "", "PO403"},
	} {
		in, err := h.Decode([]byte(c.body))
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.body, err)
		case c.fault == "" && in.Key.String() != c.key:
			t.Errorf("%s: key %s, want %s", c.body, in.Key, c.key)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: error %v, want one that names %q", c.body, err, c.fault)
		}
	}
}

func TestSettings(t *testing.T) {
	h := handler(t, provider.Settings{
		Routes: []provider.Route{
			{Name: "a", Provider: provider.OpenAI, Model: "m", Timeout: 1e9},
			{Name: "b", Provider: provider.Anthropic, Model: "n", Timeout: 7e9}},
		OnUnknown: job.Replay(2), Limits: job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}, MaxRun: time.Hour, MaxRuns: 4}, Options{})
	turn, ok := h.Call("turn")
	if !ok || turn.Policy != job.Replay(2) || turn.Timeout != 7e9 || turn.Reconcile == nil {
		t.Errorf("turn %+v: settings are not applied", turn)
	}
	if tool, ok := h.Call("tool"); !ok || tool.Policy != job.Hold() || tool.Reconcile == nil || tool.Timeout != 7e9 {
		t.Errorf("tool %+v", tool)
	}
	if tool, _ := handler(t, provider.Settings{}, Options{}).Call("tool"); tool.Timeout != ToolTimeout {
		t.Errorf("tools have %s by default", tool.Timeout)
	}
	if h.Limits() != (job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}) || h.MaxRun() != time.Hour || h.MaxRuns() != 4 {
		t.Errorf("limits %+v, max run %s, max runs %d: settings are not applied", h.Limits(), h.MaxRun(), h.MaxRuns())
	}
}

// What means the same is one use; what does not is another, also where canonical JSON of a job's input
// would leave a zero out.
func TestCanonical(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"b":1,"a":"x"}`:                       `{"a":"x","b":1}`,
		" {\n\"a\" : \"x\", \"b\":1 } ":         `{"a":"x","b":1}`,
		`{"a":{"d":1,"c":[2, 1]}}`:              `{"a":{"c":[2,1],"d":1}}`,
		`{"a":0}`:                               `{"a":0}`,
		`{}`:                                    `{}`,
		``:                                      `{}`,
		`{"n":12345678901234567890.10}`:         `{"n":12345678901234567890.10}`,
		`{"a":"<&>"}`:                           `{"a":"<&>"}`,
		`{"a":1`:                                `{"a":1`,
		`{"a":1} {"b":2}`:                       `{"a":1} {"b":2}`,
		`null`:                                  `null`,
		`[1]`:                                   `[1]`,
		`{"emoji":"\ud83d\ude00","a":"\u00e9"}`: `{"a":"é","emoji":"😀"}`,
	} {
		if got := canonical(arguments); got != want {
			t.Errorf("%s is %s, want %s", arguments, got, want)
		}
	}
}

// A provider that wants an object is sent one, whatever a model of another provider wrote.
func TestObject(t *testing.T) {
	for arguments, want := range map[string]string{`{"a":1}`: `{"a":1}`, `{"a":`: `{"arguments":"{\"a\":"}`, `[1]`: `{"arguments":"[1]"}`} {
		if got := string(Use{Arguments: arguments}.object()); got != want {
			t.Errorf("%s goes out as %s, want %s", arguments, got, want)
		}
	}
}

func TestToolsThatCannotWork(t *testing.T) {
	f := func(context.Context, Use) (string, error) { return "", nil }
	call := &job.Call[Use, string]{Name: "paid", Routes: []job.Route[Use, string]{{Name: "a", Timeout: time.Second,
		Do: func(context.Context, *job.Attempt, Use) (string, error) { return "", nil }}}}
	for name, tools := range map[string][]Tool{
		"no name":      {{Func: f}},
		"a space":      {{Name: "a b", Func: f}},
		"twice":        {{Name: "a", Func: f}, {Name: "a", Func: f}},
		"nothing":      {{Name: "a"}},
		"both":         {{Name: "a", Func: f, Call: call}},
		"a schema":     {{Name: "a", Func: f, Schema: json.RawMessage(`"string"`)}},
		"no schema":    {{Name: "a", Func: f, Schema: json.RawMessage(`{`)}},
		"a call twice": {{Name: "a", Call: call}, {Name: "b", Call: call}},
	} {
		func() {
			defer func() {
				if v, ok := recover().(string); !ok || !strings.HasPrefix(v, "PO326") && !strings.HasPrefix(v, "PO323") {
					t.Errorf("%s: %q, want a panic that says why", name, v)
				}
			}()
			handler(t, provider.Settings{}, Options{Tools: tools})
		}()
	}
	h := handler(t, provider.Settings{}, Options{Tools: []Tool{{Name: "a", Func: f}, {Name: "b", Call: call}}})
	if got := strings.Join(h.Calls(), " "); got != "paid tool turn" {
		t.Errorf("the calls are %s", got)
	}
}
