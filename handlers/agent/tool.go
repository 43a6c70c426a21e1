package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// Tool is something that the model may ask for. It is used once for the same arguments in one task,
// however often the model asks and however often the task is run: the first answer on record counts.
type Tool struct {
	Name        string          // required, unique; letters, digits, _ and -, at most 64
	Description string          // for the model: what the tool does and when to use it
	Schema      json.RawMessage // JSON schema of the arguments, an object; nil: there are none

	// Func answers a use. It must cost nothing and change nothing, since it may run again until its answer
	// is on record: a crash in the middle of it leaves no trace. It must be safe for concurrent use, and end with
	// ctx, which it does after ToolTimeout. An error of Tell is what the model is told; any other ends the run, and by its
	// class the job.
	Func func(ctx context.Context, u Use) (string, error)
	// Call answers a use that costs money or has an effect: exactly one of Func and Call is set. Its name must
	// be neither "turn" nor "tool", and it is memoised by its input, whatever its Memo says. Keep it
	// among the tools until the tasks that may have used it are done.
	Call *job.Call[Use, string]
}

// Use is one use of a tool.
type Use struct {
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"` // JSON in one form: white space and the order of fields make no other use
	Task      Task   `json:"-"`         // that it is for
}

// ToolTimeout bounds one run of a Tool's Func; where no route of the settings has as much, the longest of theirs
// does, so that whoever sets short windows for a worker sets them in one place.
const ToolTimeout = 30 * time.Second

// Read decodes the arguments into v, which should be a pointer to a struct. Its error is for the model to read.
func (u Use) Read(v any) error {
	d := json.NewDecoder(strings.NewReader(u.Arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return Tell(fmt.Errorf("the arguments of %s do not fit its schema: %w", u.Tool, err))
	}
	return nil
}

// Tell makes an error one that the model is told as the tool's answer, so that it can do better. It is on
// record like any answer. nil stays nil.
func Tell(err error) error {
	if err == nil {
		return nil
	}
	return &told{err}
}

type told struct{ error }

func (t *told) Unwrap() error { return t.error }

// parallel is how many tools of one turn run at once.
const parallel = 8

// toolbox is the tools of an agent.
type toolbox struct {
	tools []Tool
	free  job.Call[Use, string] // of all those with a Func
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func newToolbox(tools []Tool, timeout time.Duration) *toolbox {
	box := &toolbox{tools: slices.Clone(tools)}
	for i := range box.tools {
		t := &box.tools[i]
		if t.Schema == nil {
			t.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		_, first := box.find(t.Name)
		switch {
		case !nameForm.MatchString(t.Name) || first != i:
			panic(fmt.Sprintf("PO326 tool %q: a name has letters, digits, _ and -, at most 64, and belongs to one tool", t.Name))
		case (t.Func == nil) == (t.Call == nil):
			panic(fmt.Sprintf("PO326 tool %s needs one of Func and Call", t.Name))
		case !isObject(t.Schema):
			panic(fmt.Sprintf("PO326 tool %s: its schema is no JSON object", t.Name))
		}
		if t.Call != nil {
			call := *t.Call
			call.Memo = job.ByInput
			t.Call = &call
		}
	}
	box.free = job.Call[Use, string]{
		Name: "tool", Config: Prompt, Memo: job.ByInput,
		Routes: []job.Route[Use, string]{{Name: "local", Provider: "local", Timeout: timeout, Free: true, Do: box.do}},
		// An answer whose record was interrupted is worth nothing, and nobody but us was asked.
		Reconcile: func(context.Context, job.Open) (string, job.Finding, error) { return "", job.Absent, nil },
	}
	return box
}

// find is the tool of a name, nil if there is none.
func (b *toolbox) find(name string) (*Tool, int) {
	i := slices.IndexFunc(b.tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return nil, i
	}
	return &b.tools[i], i
}

// calls are the calls that the tools make.
func (b *toolbox) calls() []job.Used {
	all := job.Uses(b.free)
	for _, t := range b.tools {
		if t.Call != nil {
			all = append(all, *t.Call)
		}
	}
	return all
}

// do answers a use of a free tool. The mark comes after the work: before it nothing is on record, and the use is made
// again; between it and the answer's record lies nothing but the ledger.
func (b *toolbox) do(ctx context.Context, a *job.Attempt, u Use) (string, error) {
	text, err := b.answer(ctx, u)
	if t, ok := errors.AsType[*told](err); ok {
		text, err = "error: "+t.Error(), nil
	}
	if err != nil {
		return "", err
	}
	return text, a.Sent(ctx)
}

func (b *toolbox) answer(ctx context.Context, u Use) (string, error) {
	t, _ := b.find(u.Tool)
	if t == nil || t.Func == nil {
		return "", Tell(fmt.Errorf("there is no tool %q", u.Tool))
	}
	if !isObject([]byte(u.Arguments)) {
		return "", Tell(errors.New("the arguments are no JSON object"))
	}
	return t.Func(ctx, u)
}

// uses are the calls of a reply in the form by which they are memoised.
func (b *toolbox) uses(t Task, calls []provider.ToolCall) []Use {
	all := make([]Use, len(calls))
	for i, c := range calls {
		all[i] = Use{Tool: c.Name, Arguments: canonical(c.Arguments), Task: t}
	}
	return all
}

// results makes the uses of one turn side by side, and waits for all of them: what one costs is on record then, whatever
// becomes of another. The results are in the order of the uses.
func (b *toolbox) results(ctx context.Context, j *job.Run, uses []Use) ([]string, error) {
	results, errs := make([]string, len(uses)), make([]error, len(uses))
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, u := range uses {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = b.use(ctx, j, u)
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

// use makes one use. A panic would end the process from this goroutine, so it becomes the job's.
func (b *toolbox) use(ctx context.Context, j *job.Run, u Use) (result string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &job.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if t, _ := b.find(u.Tool); t != nil && t.Call != nil {
		return t.Call.Run(ctx, j, u)
	}
	return b.free.Run(ctx, j, u)
}

// parameters is the schema in the form that OpenAI's SDK takes.
func (t Tool) parameters() map[string]any {
	var m map[string]any
	if err := json.Unmarshal(t.Schema, &m); err != nil {
		panic(err) // checked when the tool was taken in
	}
	return m
}

func isObject(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && b[0] == '{' && json.Valid(b)
}

// canonical is the one form of arguments that mean the same. What is no JSON object stays as the model wrote it, and
// nothing at all is an object without fields.
func canonical(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber() // large integers keep every digit
	var m map[string]any
	if err := d.Decode(&m); err != nil || m == nil {
		return arguments
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return arguments
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out) // sorts the keys
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return arguments
	}
	return strings.TrimSuffix(out.String(), "\n")
}
