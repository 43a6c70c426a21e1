package summarize

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

func handler(t *testing.T, s provider.Settings) *job.Handler {
	t.Helper()
	var reg job.Registry
	job.Register(&reg, New(s, Tell{}))
	h, ok := reg.Lookup("ticket.summary")
	if !ok {
		t.Fatalf("ticket.summary is not registered; there are %v", reg.Names())
	}
	return h
}

func TestKey(t *testing.T) {
	h := handler(t, provider.Settings{})
	for _, c := range []struct{ body, key, fault string }{
		{`{"tenant":"acme","ticket":"48213","revision":3,"thread":"hello"}`, "acme:ticket.summary:48213:v3:p7", ""},
		{`{"tenant":"acme","ticket":"48213","thread":"hello"}`, "acme:ticket.summary:48213:v0:p7", ""},
		{`{"tenant":"a:b","ticket":"v1","revision":1,"thread":"hello"}`, "a%3Ab:ticket.summary:%761:v1:p7", ""},
		{`{"ticket":"48213","revision":3,"thread":"hello"}`, "", "tenant"},
		{`{"tenant":"acme","revision":3,"thread":"hello"}`, "", "entity"},
		{`{"tenant":"acme","ticket":"48213","revision":-3,"thread":"hello"}`, "", "negative"},
		{`{"tenant":"acme","ticket":48213,"thread":"hello"}`, "", "PO403"},
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

// An optional field that is added to the message later must not change old hashes.
func TestHashLeavesOutEmptyNotify(t *testing.T) {
	h := handler(t, provider.Settings{})
	plain, err := h.Decode([]byte(`{"tenant":"acme","ticket":"1","thread":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	empty, err := h.Decode([]byte(`{"notify":{},"thread":"hello","tenant":"acme","ticket":"1","revision":0}`))
	if err != nil {
		t.Fatal(err)
	}
	told, err := h.Decode([]byte(`{"tenant":"acme","ticket":"1","thread":"hello","notify":{"email":"a@b.example"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if plain.Hash != empty.Hash || plain.Hash == told.Hash {
		t.Errorf("hashes %s (plain), %s (empty notify), %s (notify): the first two must be equal, the third not", plain.Hash, empty.Hash, told.Hash)
	}
}

func TestCheck(t *testing.T) {
	email := job.Step[Email, string]{Name: EmailStep}
	slack := job.Step[Post, string]{Name: SlackStep}
	all := Tell{Email: email, Slack: slack, Channel: "#team"}
	ticket := func(n Notify) Ticket { return Ticket{Tenant: "acme", Ticket: "1", Thread: "hello", Notify: n} }
	for _, c := range []struct {
		tell   Tell
		ticket Ticket
		want   string
	}{
		{all, ticket(Notify{Email: "Ann <ann@acme.example>", Slack: "#support"}), ""},
		{all, ticket(Notify{Slack: "C0123456789"}), ""},
		{all, ticket(Notify{Slack: "default"}), ""},
		{Tell{}, ticket(Notify{}), ""},
		{all, Ticket{Tenant: "acme", Ticket: "1"}, "PO352"},
		{all, ticket(Notify{Email: "ann at acme"}), "PO353"},
		{all, ticket(Notify{Email: "ann@acme.example\r\nBcc: eve@evil.example"}), "PO353"},
		{all, ticket(Notify{Email: strings.Repeat("a", 320) + "@acme.example"}), "PO353"},
		{Tell{}, ticket(Notify{Email: "ann at acme"}), "PO353"},
		{Tell{Slack: slack}, ticket(Notify{Email: "ann@acme.example", Slack: "#support"}), "PO616"},
		{Tell{Email: email}, ticket(Notify{Email: "ann@acme.example", Slack: "#support"}), "PO617"},
		{Tell{Slack: slack}, ticket(Notify{Slack: "default"}), "PO617"},
		{all, ticket(Notify{Slack: "#support, #sales"}), "PO618"},
		{all, ticket(Notify{Slack: "#support\n"}), "PO618"},
		{all, ticket(Notify{Slack: strings.Repeat("a", 81)}), "PO618"},
	} {
		err := errors.Join(c.ticket.check(), c.tell.check(c.ticket.Notify))
		if class, _ := job.ClassOf(err); (c.want == "") != (err == nil) || err != nil && (class != job.Permanent || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want a permanent %s", c.ticket.Notify, err, c.want)
		}
	}
}

// The steps' keys have no prompt, and whatever a summary holds fits a step's row.
func TestNote(t *testing.T) {
	ticket := Ticket{Tenant: "acme", Ticket: "482\r\nBcc: 13", Revision: 3, Notify: Notify{Email: "ann@acme.example", Slack: "default"}}
	n := note(ticket, Summary{strings.Repeat("\u2028é", 50_000)})
	if e, p := (Email{n, "a"}).JobKey().String(), (Post{n, "c"}).JobKey().String(); e != "acme:email:482%0D%0ABcc%3A%2013:v3" || p != "acme:slack:482%0D%0ABcc%3A%2013:v3" {
		t.Errorf("keys %s, %s", e, p)
	}
	body, err := json.Marshal(Email{n, strings.Repeat("<", maxAddress)})
	if err != nil || len(body) > 63<<10 || !strings.HasSuffix(n.Summary, "…") || !utf8.ValidString(n.Summary) {
		t.Errorf("an input of %d bytes (%v), ending in %q", len(body), err, n.Summary[len(n.Summary)-10:])
	}
	if s := n.Subject(); strings.ContainsAny(s, "\r\n") || s != "Ticket 482  Bcc: 13, revision 3: summary" {
		t.Errorf("the subject is %q", s)
	}
	if short := note(ticket, Summary{"short"}); short.Text() != short.Subject()+"\n\nshort\n" {
		t.Errorf("the text is %q", short.Text())
	}
}

func TestSettings(t *testing.T) {
	h := handler(t, provider.Settings{
		Routes: []provider.Route{
			{Name: "a", Provider: provider.OpenAI, Model: "m", Timeout: 1e9},
			{Name: "b", Provider: provider.Anthropic, Model: "n", Timeout: 7e9}},
		OnUnknown: job.Replay(2), Limits: job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}, MaxRun: 9e9, MaxRuns: 4})
	call, ok := h.Call("summarise")
	if !ok || call.Policy != job.Replay(2) || call.Timeout != 7e9 || call.Reconcile == nil {
		t.Errorf("call %+v: settings are not applied", call)
	}
	if h.Limits() != (job.Limits{USD: 5, Calls: 6, Lifetime: 7e9}) || h.MaxRun() != 9e9 || h.MaxRuns() != 4 {
		t.Errorf("limits %+v, max run %s, max runs %d: settings are not applied", h.Limits(), h.MaxRun(), h.MaxRuns())
	}
}

func TestUnknownProvider(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "PO323") {
			t.Errorf("a route of a provider without a client registered (%v), want a panic with PO323", v)
		}
	}()
	handler(t, provider.Settings{Routes: []provider.Route{{Name: "a", Provider: "nobody", Model: "m", Timeout: 1e9}}})
}

// Addresses go from answers, in JSON as it is escaped, and from texts; a part that is not known is withheld.
func TestRedact(t *testing.T) {
	h := handler(t, provider.Settings{})
	for _, c := range []struct {
		part       job.Part
		body, want string
	}{
		{job.PartAnswer, `{"text":"a\nann@corp.example\n\u003cbob@corp.example\u003e, \"eve@x\""}`, `{"text":"a\n(address)\n\u003c(address)\u003e, \"(address)\""}`},
		{job.PartText, `PO353 notify.email "ann@corp.example" is no address`, `PO353 notify.email "(address)" is no address`},
		{job.PartText, "at 12 @ noon", "at 12 @ noon"},
		{job.PartResult, `{"summary":"ann@corp.example asks"}`, `{"summary":"ann@corp.example asks"}`},
		{"input", "ann@corp.example", "(withheld: Redact of ticket.summary returned nil)"},
	} {
		if got := h.Shown(c.part, []byte(c.body)); string(got) != c.want {
			t.Errorf("%s %s is shown as\n%s, want\n%s", c.part, c.body, got, c.want)
		}
	}
}
