package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// The documents of --json. Their fields are promised; others may join them.

type jobDocument struct {
	Key         string            `json:"key"`
	Job         string            `json:"job"`
	Tenant      string            `json:"tenant"`
	State       ledger.State      `json:"state"`
	Generation  int               `json:"generation"`
	Runs        int               `json:"runs"`
	Fence       int64             `json:"fence"`
	OpenCalls   int               `json:"open_calls"`
	Receives    int               `json:"receives"`
	CreatedAt   *time.Time        `json:"created_at"`
	DoneAt      *time.Time        `json:"done_at"`
	CostUSD     *string           `json:"cost_usd"` // decimal dollars; null: unknown
	Calls       int               `json:"calls"`    // sent in this generation, or maybe sent
	Limits      *limitsDocument   `json:"limits,omitempty"`
	Result      json.RawMessage   `json:"result"`
	Earlier     []earlierDocument `json:"earlier,omitempty"` // results of earlier generations
	Purged      bool              `json:"purged,omitempty"`  // it is done, and its result is past its retention
	Error       *ledger.JobError  `json:"error"`
	InputSHA256 string            `json:"input_sha256"`
	Group       string            `json:"group,omitempty"` // of the first message
	Trace       string            `json:"trace,omitempty"` // its traceparent, or else its AWS trace header
	Attempts    []attemptDocument `json:"attempts"`
	Steps       []jobStepDocument `json:"steps"`              // that its results asked for
	AskedBy     []string          `json:"asked_by,omitempty"` // jobs whose results asked for it as a step, the oldest
	History     []eventDocument   `json:"history"`
}

// limitsDocument are those of the job's latest run.
type limitsDocument struct {
	BudgetUSD   *string    `json:"budget_usd"`   // null: none
	ReservedUSD string     `json:"reserved_usd"` // held back for calls without an outcome
	MaxCalls    *int       `json:"max_calls"`    // null: none
	SendUntil   *time.Time `json:"send_until"`   // when its lifetime is over; null: it has none
}

type earlierDocument struct {
	Generation int             `json:"generation"`
	Result     json.RawMessage `json:"result"`
}

type attemptDocument struct {
	N                 int                 `json:"n"`
	Call              string              `json:"call"`
	Route             string              `json:"route"`
	Provider          string              `json:"provider"`
	Model             string              `json:"model"`
	Config            string              `json:"config"`
	State             ledger.AttemptState `json:"state"`
	Class             string              `json:"class"`
	SentAt            *time.Time          `json:"sent_at"`
	EndedAt           *time.Time          `json:"ended_at"`
	ClientRequestID   string              `json:"client_request_id"`
	ProviderRequestID string              `json:"provider_request_id"`
	ObjectID          string              `json:"object_id"`
	HTTPStatus        int                 `json:"http_status"`
	TokensIn          *int64              `json:"tokens_in"`
	TokensCached      *int64              `json:"tokens_cached"`
	TokensOut         *int64              `json:"tokens_out"`
	CostUSD           *string             `json:"cost_usd"`
	CostSource        string              `json:"cost_source"`
	Surplus           bool                `json:"surplus"`
	AppliedAt         *time.Time          `json:"applied_at,omitempty"` // when rows of the user's for its answer were committed (RunTx)
	AnswerKept        bool                `json:"answer_kept"`          // its answer was captured and is not past its retention: --answer N prints it
}

type jobStepDocument struct {
	Key        string       `json:"key"`
	Job        string       `json:"job"`                   // the step's name
	State      ledger.State `json:"state"`                 // as that of a job; "forgotten": the key is past its retention
	RemoteID   string       `json:"remote_id"`             // the provider's name for what was made; "": none is known
	OtherInput bool         `json:"other_input,omitempty"` // the key was asked for first with another input or job, which is what happens
}

type eventDocument struct {
	At     *time.Time   `json:"at"`
	From   ledger.State `json:"from"`
	To     ledger.State `json:"to"`
	Actor  string       `json:"actor"`
	Reason string       `json:"reason"`
	Looks  int          `json:"looks,omitempty"` // at an unknown job, of which this is the last
}

type listDocument struct {
	Jobs []listed `json:"jobs"`
}

type listed struct {
	Key       string       `json:"key"`
	Job       string       `json:"job"`
	Tenant    string       `json:"tenant"`
	State     ledger.State `json:"state"`
	Runs      int          `json:"runs"`
	CostUSD   *string      `json:"cost_usd"`
	CreatedAt *time.Time   `json:"created_at"`
	DoneAt    *time.Time   `json:"done_at"`
	Why       *string      `json:"error_class"` // of the last run that ended without a result; null: none
}

// document is the job as people may see it; h is its handler, nil if there is none.
func document(h *job.Handler, j ledger.Job) jobDocument {
	d := jobDocument{
		Key: j.Key.Text, Job: j.Action, Tenant: j.Key.Tenant, State: j.State, Generation: j.Generation, Runs: j.Runs, Fence: j.Fence,
		OpenCalls: j.OpenCalls, Receives: j.Receives, CreatedAt: instant(j.CreatedAt), DoneAt: instant(j.DoneAt), CostUSD: usd(j.Cost),
		InputSHA256: j.InputHash.String(), Attempts: []attemptDocument{}, Steps: []jobStepDocument{}, History: []eventDocument{},
	}
	d.Group, d.Trace = j.Origin.Group, cmp.Or(j.Origin.Trace, j.Origin.AWSTrace)
	d.Purged, d.Calls, d.Limits = j.Purged, j.Calls, limitsOf(j)
	if j.Result != nil {
		d.Result = h.Shown(job.PartResult, j.Result.Body)
	}
	for _, e := range j.Earlier {
		d.Earlier = append(d.Earlier, earlierDocument{e.Generation, h.Shown(job.PartResult, e.Result.Body)})
	}
	if j.Error != nil {
		d.Error = &ledger.JobError{Class: j.Error.Class, Text: h.ShownText(j.Error.Text)}
	}
	for _, a := range j.Attempts {
		d.Attempts = append(d.Attempts, attempt(a))
	}
	for _, s := range j.Steps {
		d.Steps = append(d.Steps, jobStepDocument{s.Key.Text, s.Action, cmp.Or(s.State, "forgotten"), s.RemoteID, s.Other})
	}
	for _, k := range j.AskedBy {
		d.AskedBy = append(d.AskedBy, k.Text)
	}
	for _, e := range j.History {
		d.History = append(d.History, eventDocument{instant(e.At), e.From, e.To, e.Actor, h.ShownText(e.Reason), e.Looks})
	}
	return d
}

// limitsOf are the job's limits, nil if it has none.
func limitsOf(j ledger.Job) *limitsDocument {
	if j.Budget == 0 && j.MaxCalls == 0 && j.Lifetime == 0 {
		return nil
	}
	d := &limitsDocument{ReservedUSD: j.Reserved.String()}
	if j.Budget > 0 {
		d.BudgetUSD = usd(&j.Budget)
	}
	if j.MaxCalls > 0 {
		d.MaxCalls = &j.MaxCalls
	}
	if j.Lifetime > 0 {
		d.SendUntil = instant(j.BeganAt.Add(j.Lifetime))
	}
	return d
}

func attempt(a ledger.AttemptRow) attemptDocument {
	e := a.Evidence
	source := e.CostSource
	if e.Cost == nil {
		source = "unknown"
	}
	return attemptDocument{
		N: a.N, Call: a.Call.Name, Route: a.Route, Provider: a.Provider, Model: a.Model, Config: a.Config, State: a.State, Class: e.Class,
		SentAt: instant(a.SentAt), EndedAt: instant(a.EndedAt), ClientRequestID: a.ClientRequestID, ProviderRequestID: e.ProviderRequestID,
		ObjectID: e.ObjectID, HTTPStatus: e.Status, TokensIn: e.Usage.In, TokensCached: e.Usage.Cached, TokensOut: e.Usage.Out,
		CostUSD: usd(e.Cost), CostSource: source, Surplus: a.Surplus, AppliedAt: instant(a.Applied), AnswerKept: a.AnswerKept,
	}
}

func inList(j ledger.Job) listed {
	x := listed{j.Key.Text, j.Action, j.Key.Tenant, j.State, j.Runs, usd(j.Cost), instant(j.CreatedAt), instant(j.DoneAt), nil}
	if j.Error != nil && j.State != ledger.Done && j.State != ledger.Running {
		x.Why = &j.Error.Class
	}
	return x
}

// instant is t in UTC, nil for none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func usd(n *ledger.Nano) *string {
	if n == nil {
		return nil
	}
	return new(n.String())
}

// show prints a document in JSON, or text for people.
func show(c *call, as asJSON, doc any, text func(io.Writer) error) error {
	if !as.JSON {
		return text(c.Stdout)
	}
	e := json.NewEncoder(c.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

func printList(w io.Writer, jobs []listed) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "no jobs")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tSTATE\tRUNS\tCOST USD\tCREATED\tDONE")
	for _, j := range jobs {
		state := string(j.State)
		if j.Why != nil {
			state += " (" + oneLine(*j.Why) + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", j.Key, state, j.Runs, text(j.CostUSD), clock(j.CreatedAt), clock(j.DoneAt))
	}
	return t.Flush()
}

func printJob(w io.Writer, d jobDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, format string, a ...any) { fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, a...)...) }
	row("key", "%s", d.Key)
	row("state", "%s", d.State)
	if d.Error != nil {
		row("error", "%s: %s", d.Error.Class, d.Error.Text)
	}
	row("cost", "%s USD", text(d.CostUSD))
	if d.Limits != nil {
		row("limits", "%s", strings.Join(d.Limits.words(d.Calls), ", "))
	}
	row("runs", "%d, received %d times, generation %d, fence %d, open calls %d", d.Runs, d.Receives, d.Generation, d.Fence, d.OpenCalls)
	row("created", "%s", clock(d.CreatedAt))
	if d.DoneAt != nil {
		row("done", "%s", clock(d.DoneAt))
	}
	if d.Result != nil {
		row("result", "%s", d.Result)
	}
	if d.Purged {
		row("result", "past its retention")
	}
	row("input", "sha256 %s", d.InputSHA256)
	if d.Group != "" {
		row("group", "%s", oneLine(d.Group))
	}
	if d.Trace != "" {
		row("trace", "%s", oneLine(d.Trace))
	}
	for _, a := range d.Attempts {
		row(fmt.Sprintf("attempt %d", a.N), "%s %s %s: %s", a.Call, target(a.Provider, a.Model), a.Route, strings.Join(outcomeOf(a), ", "))
		row("", "sent %s as %s, request %s, object %s", clock(a.SentAt), a.ClientRequestID, orNone(a.ProviderRequestID), orNone(a.ObjectID))
	}
	for i, s := range d.Steps {
		row(map[bool]string{true: "steps"}[i == 0], "%s  %s%s", s.Key, s.State, noted(s))
	}
	for i, k := range d.AskedBy {
		row(map[bool]string{true: "step of"}[i == 0], "%s", k)
	}
	for i, e := range d.History {
		row(map[bool]string{true: "history"}[i == 0], "%s  %s  %s: %s", clock(e.At), change(e), e.Actor, reasonOf(e))
	}
	return t.Flush()
}

// words are the limits, and how far they are used up; the cost stands beside them.
func (l *limitsDocument) words(calls int) (all []string) {
	if l.BudgetUSD != nil {
		all = append(all, fmt.Sprintf("%s USD (%s held back)", *l.BudgetUSD, l.ReservedUSD))
	}
	if l.MaxCalls != nil {
		all = append(all, fmt.Sprintf("%d of %d calls sent", calls, *l.MaxCalls))
	}
	if l.SendUntil != nil {
		all = append(all, "calls until "+clock(l.SendUntil))
	}
	return all
}

// target is whom an attempt went to. Steps have no model.
func target(provider, model string) string { return strings.TrimSuffix(provider+"/"+model, "/") }

// noted is what else is known of a step.
func noted(s jobStepDocument) string {
	var b strings.Builder
	if s.RemoteID != "" {
		b.WriteString(", object " + s.RemoteID)
	}
	if s.OtherInput {
		b.WriteString(", asked for first with another input")
	}
	return b.String()
}

// reasonOf is why, and after how many looks at an unknown job.
func reasonOf(e eventDocument) string {
	if e.Looks < 2 {
		return e.Reason
	}
	return fmt.Sprintf("%s (look %d)", e.Reason, e.Looks)
}

// change is the state before and after an event, or the one state that stayed.
func change(e eventDocument) string {
	switch e.From {
	case e.To:
		return string(e.To)
	case "":
		return "new -> " + string(e.To)
	}
	return fmt.Sprintf("%s -> %s", e.From, e.To)
}

// outcomeOf says in a few words what became of an attempt.
func outcomeOf(a attemptDocument) []string {
	words := []string{string(a.State)}
	if a.Class != "" && a.Class != string(a.State) {
		words = append(words, a.Class)
	}
	if a.HTTPStatus != 0 {
		words = append(words, fmt.Sprintf("HTTP %d", a.HTTPStatus))
	}
	if a.TokensIn != nil && a.TokensOut != nil {
		words = append(words, fmt.Sprintf("%d tokens in, %d out", *a.TokensIn, *a.TokensOut))
	}
	if a.Surplus {
		words = append(words, "not needed (wasted)")
	}
	if a.AppliedAt != nil {
		words = append(words, "rows committed")
	}
	if a.AnswerKept {
		words = append(words, "answer kept")
	}
	return append(words, text(a.CostUSD)+" USD")
}

func text(s *string) string {
	if s == nil {
		return "unknown"
	}
	return *s
}

func orNone(s string) string {
	if s == "" {
		return "(none seen)"
	}
	return s
}

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format("2006-01-02 15:04:05.000Z")
}
