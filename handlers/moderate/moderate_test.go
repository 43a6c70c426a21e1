package moderate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

func handler(t *testing.T, s provider.Settings) *job.Handler {
	t.Helper()
	var reg job.Registry
	job.Register(&reg, New(s))
	h, ok := reg.Lookup("content.moderate")
	if !ok {
		t.Fatalf("content.moderate is not registered; there are %v", reg.Names())
	}
	return h
}

func TestKey(t *testing.T) {
	h := handler(t, provider.Settings{})
	for _, c := range []struct{ body, key, fault string }{
		{`{"tenant":"acme","content":"7714","revision":2,"text":"hello"}`, "acme:content.moderate:7714:v2:p1", ""},
		{`{"tenant":"acme","content":"7714","text":"hello"}`, "acme:content.moderate:7714:v0:p1", ""},
		{`{"tenant":"a:b","content":"v1","revision":1,"text":"hello"}`, "a%3Ab:content.moderate:%761:v1:p1", ""},
		{`{"content":"7714","revision":2,"text":"hello"}`, "", "tenant"},
		{`{"tenant":"acme","revision":2,"text":"hello"}`, "", "entity"},
		{`{"tenant":"acme","content":"7714","revision":"2","text":"hello"}`, "", "PO403"},
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

// What is no clear verdict must not pass for one, least of all for "not flagged".
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`{"flagged":false,"categories":[]}`:                            `{"flagged":false,"categories":[]}`,
		`{"flagged":false}`:                                            `{"flagged":false,"categories":[]}`,
		`{"flagged":true,"categories":["violence","hate","violence"]}`: `{"flagged":true,"categories":["hate","violence"]}`,
		`{"flagged":true,"categories":[]}`:                             "PO357",
		`{"flagged":false,"categories":["hate"]}`:                      "PO357",
		`{"categories":[]}`:                                            "PO357",
		`null`:                                                         "PO357",
		`{"flagged":"no","categories":[]}`:                             "PO357",
		`I would rather not`:                                           "PO357",
	} {
		v, err := parse(text, nil)
		if class, _ := job.ClassOf(err); err != nil && (class != job.Permanent || !strings.Contains(err.Error(), want)) || err == nil && encode(t, v) != want {
			t.Errorf("%s: %+v, %v; want %s", text, v, err, want)
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSettings(t *testing.T) {
	h := handler(t, provider.Settings{
		Routes: []provider.Route{
			{Name: "a", Provider: provider.OpenAI, Model: "m", Timeout: 1e9},
			{Name: "b", Provider: provider.Anthropic, Model: "n", Timeout: 7e9}},
		OnUnknown: job.Replay(2), Limits: job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}, MaxRun: 9e9, MaxRuns: 4})
	call, ok := h.Call("moderate")
	if !ok || call.Policy != job.Replay(2) || call.Timeout != 7e9 || call.Reconcile == nil {
		t.Errorf("call %+v: settings are not applied", call)
	}
	if h.Limits() != (job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}) || h.MaxRun() != 9e9 || h.MaxRuns() != 4 {
		t.Errorf("limits %+v, max run %s, max runs %d: settings are not applied", h.Limits(), h.MaxRun(), h.MaxRuns())
	}
}
