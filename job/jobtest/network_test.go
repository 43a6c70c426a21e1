package jobtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// poster is sorter with a step that goes over HTTP.
func poster() (job.Def[ticket, sorted], Options) {
	call := sortCall()
	step := job.Step[mail, int]{Name: "post", Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, m mail) (int, error) {
		_, err := post(ctx, a.Effect(), m.Topic)
		return 200, err
	}}
	opt := model
	opt.Steps = func(reg *job.Registry) { job.RegisterStep(reg, step) }
	return job.Def[ticket, sorted]{Name: "ticket.sort", Uses: job.Uses(call), Steps: job.Steps(step),
		Handle: func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
			out, err := call.Run(ctx, j, m)
			if err != nil {
				return out, err
			}
			return out, step.After(j, mail{m.Tenant, m.ID, out.Topic})
		}}, opt
}

// An effect over HTTP has the points of a call, and the provider's log says whether it was made.
func TestEffectOverHTTP(t *testing.T) {
	def, opt := poster()
	points := 0
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		if strings.Contains(e.When, "answered step post") || strings.Contains(e.When, "request of step post") {
			points++
		}
		if e.State != ledger.Done || e.Sends["sort"] != 1 || e.Sends["post"] != 1 || e.Steps["acme:mail:48213"] != ledger.Done {
			t.Errorf("%s: %s, sent %v, steps %v", e.When, e.State, e.Sends, e.Steps)
		}
	}, opt)
	if points != 2 {
		t.Errorf("%d points on the wire of the step", points)
	}
	SevenPaths(t, def, in, opt)
}

// What costs nothing may be asked for by the handler itself: look-ups always, and what Options.Free knows.
func TestFree(t *testing.T) {
	call := sortCall()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			req, err := http.NewRequestWithContext(ctx, method, "https://login.example/token", nil)
			if err != nil {
				return sorted{}, err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return sorted{}, err
			}
			resp.Body.Close()
		}
		return call.Run(ctx, j, m)
	}, call)
	r := &recorder{TB: t}
	runReporting(t, r, def, in, []Option{model})
	r.only(t, "POST https://login.example/token was sent by the handler itself")
	opt := model
	opt.Free = func(r *http.Request) bool { return r.Host == "login.example" }
	Run(t, def, in, opt)
}

// An effect is that of the step which it is named after; where nothing says whose it is, that is said.
func TestWhoseEffect(t *testing.T) {
	for name, c := range map[string]struct {
		open    []string // keys' texts, whose second part is the step's name
		effects []string
		did     string // what the gates have: 1 an effect, 0 none, ? nobody knows
	}{
		"only one":               {[]string{"acme:mail:1"}, []string{"x"}, "1"},
		"two effects of one":     {[]string{"acme:mail:1"}, []string{"x", "y"}, "1"},
		"the last":               {[]string{"acme:mail:1", "acme:post:1"}, []string{"a post"}, "01"},
		"the first":              {[]string{"acme:mail:1", "acme:post:1"}, []string{"a mail"}, "10"},
		"the longer name":        {[]string{"acme:mail.bill:1", "acme:mail:1"}, []string{"mail.bill to ann"}, "10"},
		"by key":                 {[]string{"acme:mail:1:ann", "acme:mail:1:bob"}, []string{"mail 1 to ann"}, "10"},
		"by the longer key":      {[]string{"acme:mail:10", "acme:mail:1"}, []string{"mail 10"}, "10"},
		"no name":                {[]string{"acme:mail:1", "acme:post:1"}, []string{"x"}, "??"},
		"the name of two":        {[]string{"acme:mail:1:ann", "acme:mail:1:bob"}, []string{"mail 1"}, "??"},
		"no name, but all of it": {[]string{"acme:mail:1", "acme:post:1"}, []string{"x", "y"}, "11"},
		"the one that is left":   {[]string{"acme:mail:1", "acme:post:1"}, []string{"a mail", "x"}, "11"},
		"two of three":           {[]string{"acme:mail:1", "acme:post:1", "acme:tell:1"}, []string{"x", "y"}, "???"},
		"who is no part of it":   {[]string{"acme:mail:1:ann", "acme:mail:1:bob", "acme:post:1"}, []string{"mail 1"}, "??0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{did: map[string]int{}}
			for _, k := range c.open {
				w.gates = append(w.gates, &gate{key: ledger.Key{Tenant: "acme", Text: k}, job: strings.Split(k, ":")[1]})
			}
			current.Store(w)
			defer current.Store(nil)
			for _, e := range c.effects {
				Did(e)
			}
			var got strings.Builder
			for _, g := range w.gates {
				switch said := len(w.problems); {
				case g.did:
					got.WriteString("1")
				case w.doubtful(g) && len(w.problems) == said+1:
					got.WriteString("?")
				default:
					got.WriteString("0")
				}
			}
			if got.String() != c.did {
				t.Errorf("the gates have %s, want %s; %v", got.String(), c.did, w.problems)
			}
		})
	}
}

// A client of a run finds the run's provider, and nothing is left of it afterwards.
func TestDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	Run(t, sorter(), in, withMail(model))
	if http.DefaultTransport != before {
		t.Error("http.DefaultTransport is not what it was")
	}
	Did("mail") // nobody is there, and nobody minds
}

// A parallel test would have its neighbours' requests answered.
func TestParallelIsRefused(t *testing.T) {
	t.Run("parallel", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "Parallel") {
				t.Errorf("a parallel test panicked with %v", v)
			}
		}()
		Run(t, sorter(), in, withMail(model))
	})
}
