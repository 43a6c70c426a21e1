// Package job is what a handler imports: keys, calls, and the run it is part of.
//
// A handler is an ordinary Go function. What must be paid once goes into a [Call];
// its answer is kept before user code sees it, so everything around the
// call may crash, panic or be wrong and run again without paying again.
package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// Keyed is a message: it knows the key of the job it asks for. JobKey must depend
// on the message alone.
type Keyed interface{ JobKey() Key }

// Def defines a handler. In is the message, decoded from JSON; Out is the result,
// encoded to JSON.
type Def[In Keyed, Out any] struct {
	// Name is the job's name in messages, keys, metrics and configuration. Required.
	Name string
	// Uses lists every Call that Handle makes, so that names, timeouts and
	// policies are checked at start and the reconciler can find them.
	Uses []Used
	// Handle does the work. It may run more than once for one key; calls that were
	// answered are not made again. An error without a class is retried.
	Handle func(ctx context.Context, j *Run, in In) (Out, error)
	// Steps lists every Step that Handle asks for. Each must be registered, which is checked at start.
	Steps []Stepped
	// MaxRun bounds a single run. 0: the consumer's; it must be longer than the
	// longest route timeout.
	MaxRun time.Duration
	// MaxRuns bounds the runs of one job. 0: the consumer's.
	MaxRuns int
	// Limits bound what one job may cost, how many calls it may send, and for how long. The zero value: nothing does.
	Limits Limits
	// Volatile lists top-level JSON fields of In that may differ between two
	// messages of the same key.
	Volatile []string
	// Redact makes of a part of a job what people may see of it, in `worker jobs show`, `worker dlq list`
	// and the log; body is its own copy. What is stored stays whole, since jobs resume from it, and so does what
	// programs read from the ledger. nil: all is shown. It must depend on its arguments alone, is called from many
	// goroutines, each time anew, and may be given a text that it made before. What it panics at or returns nil for is withheld whole.
	Redact func(part Part, body []byte) []byte
}

// Registry holds the handlers of a worker. The zero value is ready to use.
// Register everything before the consumer starts.
type Registry struct{ byName map[string]*Handler }

// Register adds a handler. It panics on a definition that can never work (no
// name, a name twice, a call without a timeout): these are programmer's errors, found at start.
func Register[In Keyed, Out any](r *Registry, d Def[In, Out]) {
	h := newHandler(d)
	if r.byName == nil {
		r.byName = make(map[string]*Handler)
	}
	if _, twice := r.byName[h.name]; twice {
		panic(fmt.Sprintf("PO320 job %q is registered twice", h.name))
	}
	r.byName[h.name] = h
}

// Lookup finds a handler by its job's name.
func (r *Registry) Lookup(name string) (*Handler, bool) {
	h, ok := r.byName[name]
	return h, ok
}

// Names lists the registered jobs in order.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.byName))
	for n := range r.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Check returns every step that a job asks for and that is not registered. Nobody would run it.
func (r *Registry) Check() error {
	var errs []error
	for _, name := range r.Names() {
		for _, s := range slices.Sorted(maps.Keys(r.byName[name].steps)) {
			if h, ok := r.byName[s]; !ok || !h.step {
				errs = append(errs, fmt.Errorf("PO585 job %s asks for step %q, which is not registered: call job.RegisterStep, or nobody would make it", name, s))
			}
		}
	}
	return errors.Join(errs...)
}

// Handler is a registered definition with its types erased.
type Handler struct {
	name     string
	maxRun   time.Duration
	maxRuns  int
	limits   Limits
	calls    map[string]CallInfo
	steps    map[string]bool // that it may ask for
	step     bool            // it runs a step
	volatile []string
	redact   func(part Part, body []byte) []byte
	decode   func(body []byte) (Keyed, error)
	handle   func(ctx context.Context, j *Run, in any) (any, error)
}

// Name is the job's name.
func (h *Handler) Name() string { return h.name }

// MaxRun is the definition's, 0 if it has none.
func (h *Handler) MaxRun() time.Duration { return h.maxRun }

// MaxRuns is the definition's, 0 if it has none.
func (h *Handler) MaxRuns() int { return h.maxRuns }

// Limits are the definition's.
func (h *Handler) Limits() Limits { return h.limits }

// Call finds a call of the handler by name.
func (h *Handler) Call(name string) (CallInfo, bool) {
	c, ok := h.calls[name]
	return c, ok
}

// Calls are the names of the handler's calls, in order.
func (h *Handler) Calls() []string { return slices.Sorted(maps.Keys(h.calls)) }

// LongestRoute is the longest timeout of any route of any call.
func (h *Handler) LongestRoute() time.Duration {
	var d time.Duration
	for _, c := range h.calls {
		d = max(d, c.Timeout)
	}
	return d
}

// Input is a decoded message.
type Input struct {
	Key Key
	Content
}

// Content is what a decoded message says beside its key: what a handler is run on.
type Content struct {
	Hash ledger.Hash
	Body []byte // as received: what the ledger keeps
	in   Keyed
}

// Decode reads a message body, computes its key and hashes its content. Its
// errors say what is wrong with the message; no later try can help.
func (h *Handler) Decode(body []byte) (Input, error) {
	if !utf8.Valid(body) {
		return Input{}, fmt.Errorf("PO402 input of %s is not UTF-8", h.name)
	}
	in, err := h.decode(body)
	if err != nil {
		return Input{}, fmt.Errorf("PO403 input of %s: %w", h.name, err)
	}
	key, again := in.JobKey(), in.JobKey()
	if err := key.Check(); err != nil {
		return Input{}, fmt.Errorf("PO404 input of %s yields no key: %w", h.name, err)
	}
	if !key.same(again) {
		return Input{}, fmt.Errorf("PO405 key of %s changes from call to call (%s, %s): JobKey may use the message alone", h.name, key, again)
	}
	hash, err := hashInput(in, h.volatile)
	if err != nil {
		return Input{}, fmt.Errorf("PO403 input of %s: %w", h.name, err)
	}
	return Input{key, Content{Hash: hash, Body: body, in: in}}, nil
}

// Encode makes of a message what Decode of the handler of that name would read: its body, key and hash. volatile is
// the Def's.
func Encode[In Keyed](name string, in In, volatile ...string) (Input, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return Input{}, fmt.Errorf("PO403 input of %s cannot be encoded: %w", name, err)
	}
	h := Handler{name: name, volatile: volatile, decode: decoder[In]()}
	return h.Decode(body)
}

// Run runs the handler once on what Decode returned, and encodes its result. A panic becomes a *PanicError.
func (h *Handler) Run(ctx context.Context, j *Run, in *Content) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, j.panicked(v)
		}
	}()
	j.calls, j.declared = h.calls, h.steps
	res, err := h.handle(ctx, j, in.in)
	if err != nil {
		return nil, err
	}
	return h.encode(res)
}

func (h *Handler) encode(res any) ([]byte, error) {
	out, err := json.Marshal(res)
	if err != nil {
		return nil, Failf("PO321 result of %s cannot be encoded: %w", h.name, err)
	}
	return out, nil
}

func newHandler[In Keyed, Out any](d Def[In, Out]) *Handler {
	if d.Name == "" || d.Handle == nil {
		panic("PO322 a job needs a Name and a Handle")
	}
	if err := d.Limits.check(); err != nil {
		panic(fmt.Sprintf("PO323 job %s: %v", d.Name, err))
	}
	h := &Handler{
		name: d.Name, maxRun: d.MaxRun, maxRuns: d.MaxRuns, limits: d.Limits, volatile: d.Volatile, redact: d.Redact,
		calls:  make(map[string]CallInfo, len(d.Uses)),
		steps:  make(map[string]bool, len(d.Steps)),
		decode: decoder[In](),
		handle: func(ctx context.Context, j *Run, in any) (any, error) { return d.Handle(ctx, j, in.(In)) },
	}
	for _, s := range d.Steps {
		h.steps[s.stepName()] = true
	}
	for _, u := range d.Uses {
		c := u.info()
		if err := c.check(); err != nil {
			panic(fmt.Sprintf("PO323 job %s: %v", d.Name, err))
		}
		if _, twice := h.calls[c.Name]; twice {
			panic(fmt.Sprintf("PO323 job %s: call %s is listed twice", d.Name, c.Name))
		}
		if d.MaxRun > 0 && c.Timeout >= d.MaxRun {
			panic(fmt.Sprintf("PO323 job %s: MaxRun %s is not longer than timeout %s of call %s", d.Name, d.MaxRun, c.Timeout, c.Name))
		}
		h.calls[c.Name] = c
	}
	return h
}

// decoder reads messages of one type.
func decoder[In Keyed]() func([]byte) (Keyed, error) {
	return func(body []byte) (Keyed, error) {
		var in In
		err := decodeStrict(body, &in)
		return in, err
	}
}

// decodeStrict reads exactly one JSON object. Fields that In does not know are
// passed over, so that a newer producer can add one.
func decodeStrict(body []byte, into any) error {
	if t := bytes.TrimSpace(body); len(t) == 0 || t[0] != '{' {
		return fmt.Errorf("want a JSON object, have %s", sample(t))
	}
	return json.Unmarshal(body, into)
}

func sample(b []byte) string {
	if len(b) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.20q", b)
}
