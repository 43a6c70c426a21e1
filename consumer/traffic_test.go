package consumer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// overloaded is a provider behind a pipe, so that it fits into a bubble: it refuses until a moment.
func overloaded(until time.Time, asked *atomic.Int64) *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
				return
			}
			asked.Add(1)
			status, more, body := "200 OK", "", `{"id":"resp_1","object":"response","status":"completed","output":[]}`
			if time.Now().Before(until) {
				status, more, body = "429 Too Many Requests", "Retry-After: 60\r\n", `{"error":{"type":"rate_limit_error"}}`
			}
			fmt.Fprintf(theirs, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), more, body)
		}()
		return ours, nil
	}}
}

// posting is a route that posts to a provider.
func posting(name string) job.Route[ask, string] {
	return job.Route[ask, string]{Name: name, Provider: "openai", Model: "m1", Timeout: 2 * time.Minute, Do: func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider/"+in.Doc, strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		resp, err := a.HTTP().Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			return "", errors.New(string(b))
		}
		return "answer to " + in.Doc, err
	}}
}

// While a provider is overloaded one job at a time asks it, and the runs of the others, which send nothing, do not count.
func TestRestingRoute(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0] = posting("primary")
		var asked atomic.Int64
		wire := overloaded(time.Now().Add(30*time.Minute), &asked)
		docs := []string{"1", "2", "3", "4"}
		r.send(docs...)
		a := r.start("a", func(c *consumer.Config) { c.Wire, c.MaxRuns, c.Workers = wire, 50, 1 })
		time.Sleep(2 * time.Hour)
		r.end(a)
		refused := 0
		for _, d := range docs {
			j := r.job(d)
			if j.State != ledger.Done || j.Runs != len(j.Attempts) {
				t.Errorf("job %s is %s after %d runs with %d attempts", d, j.State, j.Runs, len(j.Attempts))
			}
			refused += len(j.Attempts) - 1
		}
		if n := int(asked.Load()); n != refused+len(docs) || refused < 25 || refused > 31 {
			t.Errorf("asked %d times in half an hour of refusals, %d of them in vain; one a minute is right", n, refused)
		}
		r.queue(memory.Depth{})
	})
}

// Many jobs share a route that takes one at a time, or one a minute: those that find no place before their run's deadline
// come back without having used up a run, and all are done in the end.
func TestWaitingForAPlaceUsesUpNothing(t *testing.T) {
	for name, limit := range map[string]func(*job.Route[ask, string]){
		"one at once":  func(rt *job.Route[ask, string]) { rt.AtOnce = 1 },
		"one a minute": func(rt *job.Route[ask, string]) { rt.PerMinute = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				limit(&r.call.Routes[0])
				r.call.Routes[0].Timeout = 5 * time.Minute
				r.prov.script = func(string, int) (time.Duration, error) { return 4 * time.Minute, nil }
				var docs []string
				for i := range 40 {
					docs = append(docs, fmt.Sprint(i))
				}
				r.send(docs...)
				a := r.start("a", func(c *consumer.Config) { c.Workers, c.MaxRun, c.MaxRuns = 40, 10*time.Minute, 3 })
				time.Sleep(24 * time.Hour)
				r.end(a)
				for _, d := range docs {
					r.want(d, done1)
				}
				r.queue(memory.Depth{})
			})
		})
	}
}

// A run that paid for something counts, whatever rests beside it, and so does the handler's own word about its end.
func TestRunsThatSentCount(t *testing.T) {
	for name, says := range map[string]func(error) error{"permanent": job.Fail, "nothing of its own": func(err error) error { return err }} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				draft, check := r.call, r.call
				draft.Name, check.Name = "draft", "check"
				draft.Routes = []job.Route[ask, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
					Do: func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
						if err := a.Sent(ctx); err != nil {
							return "", err
						}
						_, err := r.prov.generate(ctx, in.Doc)
						return "", job.Fail(errors.Join(errors.New("billed, and of no use"), err))
					}}}
				check.Routes = []job.Route[ask, string]{posting("primary")}
				reg := new(job.Registry)
				job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(draft, check),
					Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
						_, two := check.Run(ctx, j, in)
						_, one := draft.Run(ctx, j, in)
						return "", says(fmt.Errorf("%w, %w", two, one))
					}})
				var asked atomic.Int64
				wire := overloaded(time.Now().Add(1000*time.Hour), &asked)
				r.send("1", "2", "3", "4")
				a := r.start("a", func(c *consumer.Config) { c.Handlers, c.Wire, c.MaxRuns = reg, wire, 3 })
				time.Sleep(24 * time.Hour)
				r.end(a)
				for _, d := range []string{"1", "2", "3", "4"} {
					if j := r.job(d); r.prov.billed(d) > 3 || j.State != ledger.Failed {
						t.Errorf("job %s, which may run 3 times, was billed %d times and is %s after %d runs", d, r.prov.billed(d), j.State, j.Runs)
					}
				}
			})
		})
	}
}
