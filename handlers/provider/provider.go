// Package provider is what the bundled handlers share: the settings that a
// configuration gives them, and how their routes reach a model.
//
// The clients are the vendors' own, with their defaults. Nothing here knows about
// retries, ids or bills: the HTTP client that a [job.Attempt] gives them does.
package provider

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	claude "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/job"
)

// The providers that a Route may name.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// Names lists the providers.
func Names() []string { return []string{OpenAI, Anthropic} }

// Retry is what handlers use when their Settings name no backoff: it follows definite
// refusals only, such as a rate limit.
var Retry = job.Backoff{Max: 2, First: 2 * time.Second, Ceil: 30 * time.Second}

// Settings are what a configuration may say about one handler. A zero field leaves
// the handler's own default.
type Settings struct {
	Routes    []Route // in the order in which they are tried
	OnUnknown job.Policy
	Retry     job.Backoff
	Limits    job.Limits    // of one job, over all its deliveries
	MaxRun    time.Duration // 0: the consumer's
	MaxRuns   int           // 0: the consumer's
	OpenAI    Account
	Anthropic Account
}

// Route is one way to a model.
type Route struct {
	Name     string // unique within the handler; kept on every attempt
	Provider string // OpenAI or Anthropic
	Model    string
	Timeout  time.Duration // of one attempt, from the connection to the last byte

	// Background asks OpenAI for a response in background mode, where the handler can: its id is on record when it is
	// begun, it outlives the request, and a lost answer is found by it.
	Background bool

	// TrustAbsence has a call that OpenAI's store does not list, asked after the settle window, count as never made, so that it is
	// made. That is wrong for a project that keeps nothing (zero retention), or when listing lags longer than that window:
	// then it is paid twice. Without it such a call is held.
	TrustAbsence bool

	AtOnce    int // attempts of this process under way at a time; 0: no bound
	PerMinute int // attempts that this process begins a minute; 0: no bound
}

// Account says where a provider is and who asks. Empty fields are the SDK's own
// defaults: OPENAI_API_KEY, OPENAI_BASE_URL and the like.
type Account struct {
	BaseURL string
	APIKey  string
}

// String hides the key.
func (a Account) String() string { return "account at " + a.BaseURL }

// GoString hides the key.
func (a Account) GoString() string { return a.String() }

// Ways says how a handler asks each provider.
type Ways[In, Out any] struct {
	OpenAI func(ctx context.Context, client *openai.Client, a *job.Attempt, in In) (Out, error)
	// Background is OpenAI's for routes in background mode. nil: the handler has none.
	Background func(ctx context.Context, client *openai.Client, a *job.Attempt, in In) (Out, error)
	Anthropic  func(ctx context.Context, client *anthropic.Client, a *job.Attempt, in In) (Out, error)
}

// WithDefaults fills in the routes and the backoff if there are none.
func (s Settings) WithDefaults(routes []Route) Settings {
	if len(s.Routes) == 0 {
		s.Routes = routes
	}
	s.Retry = cmp.Or(s.Retry, Retry)
	return s
}

// Routes makes the routes of a call. A route that names a provider without a way, or background mode where there is none,
// has no Do, and job.Register says so.
func Routes[In, Out any](s Settings, ways Ways[In, Out]) []job.Route[In, Out] {
	routes := make([]job.Route[In, Out], len(s.Routes))
	for i, r := range s.Routes {
		routes[i] = job.Route[In, Out]{Name: r.Name, Provider: r.Provider, Model: r.Model, Timeout: r.Timeout, AtOnce: r.AtOnce, PerMinute: r.PerMinute,
			Traced: r.Provider == OpenAI && !r.Background} // stored completions are found by their metadata
		switch {
		case r.Background && (r.Provider != OpenAI || ways.Background == nil):
		case r.Background:
			routes[i].Do = func(ctx context.Context, a *job.Attempt, in In) (Out, error) {
				return ways.Background(ctx, s.OpenAI.openai(a.HTTP()), a, in)
			}
		case r.Provider == OpenAI:
			routes[i].Do = func(ctx context.Context, a *job.Attempt, in In) (Out, error) {
				return ways.OpenAI(ctx, s.OpenAI.openai(a.HTTP()), a, in)
			}
		case r.Provider == Anthropic:
			routes[i].Do = func(ctx context.Context, a *job.Attempt, in In) (Out, error) {
				return ways.Anthropic(ctx, s.Anthropic.anthropic(a.HTTP(), r.Timeout), a, in)
			}
		}
	}
	return routes
}

// The clients are pointers: as values they take 6 KB of every waiting call's stack, and a
// stack is as large as the next power of two.

func (a Account) openai(c *http.Client) *openai.Client {
	opts := []option.RequestOption{option.WithHTTPClient(c)}
	if a.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(a.BaseURL))
	}
	if a.APIKey != "" {
		opts = append(opts, option.WithAPIKey(a.APIKey))
	}
	client := openai.NewClient(opts...)
	return &client
}

// anthropic is told the route's timeout, since the SDK has one of its own (10 minutes), and refuses answers that may be
// too long for it.
func (a Account) anthropic(c *http.Client, timeout time.Duration) *anthropic.Client {
	opts := []claude.RequestOption{claude.WithHTTPClient(c), claude.WithRequestTimeout(timeout)}
	if a.BaseURL != "" {
		opts = append(opts, claude.WithBaseURL(a.BaseURL))
	}
	if a.APIKey != "" {
		opts = append(opts, claude.WithAPIKey(a.APIKey))
	}
	client := anthropic.NewClient(opts...)
	return &client
}

// Metadata names the job and the attempt, so that a lost answer can be found. It goes
// with Store: OpenAI keeps completions that were asked for so.
func Metadata(a *job.Attempt) shared.Metadata { return openaifind.Metadata(a) }

// Stored looks for the completion of an attempt whose answer was lost, in OpenAI's
// store. What is not there is no evidence, unless the route has TrustAbsence. Anthropic keeps nothing that could be asked for.
func Stored(ctx context.Context, s Settings, o job.Open) (*openai.ChatCompletion, job.Finding, error) {
	i := slices.IndexFunc(s.Routes, func(r Route) bool { return r.Name == o.Route && r.Provider == OpenAI })
	if i < 0 {
		return nil, job.CannotTell, nil
	}
	c, found, err := openaifind.Completion(ctx, s.OpenAI.openai(job.Unguarded()), o)
	if err == nil && found == job.CannotTell && s.Routes[i].TrustAbsence {
		found = job.Absent // the ledger takes it for proof after the settle window alone
	}
	return c, found, err
}
