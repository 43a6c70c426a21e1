package slack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/slack"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// note is the message of a step.
type note struct {
	Tenant, ID, Channel, Text string
}

func (n note) JobKey() job.Key { return job.K(n.Tenant, "slack", n.ID).Rev(3) }

const (
	noteBody = `{"Tenant":"acme","ID":"48213","Channel":"#support","Text":"a <!channel> & more"}`
	noteKey  = "acme:slack:48213:v3"
)

func write(n note) (slack.Message, error) {
	return slack.Message{Channel: n.Channel, Text: n.Text}, nil
}

// rig is one post and Slack, in a bubble.
type rig struct {
	*mortal.World
	stub      *slackstub.Stub
	workspace slack.Workspace
}

func bubble(t *testing.T, opt slackstub.Options, f func(*rig)) {
	mortal.Bubble(t, func(w *mortal.World) {
		opt.Listener = w.Net.Listen("slack.test:80")
		stub, err := slackstub.Start(opt)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{w, stub, slack.Workspace{BaseURL: stub.URL(), Token: slackstub.Token, Client: w.Client()}}
		w.Register = func(reg *job.Registry) { job.RegisterStep(reg, slack.Step("slack", r.workspace, write)) }
		f(r)
		if err := stub.Close(); err != nil {
			t.Errorf("closing the stub: %v", err)
		}
	})
}

// end is a whole end state.
type end struct {
	state    ledger.State
	attempts map[string]int // how many in which state and of which class
	messages int
	posts    int    // requests to post
	err      string // in the job's error
}

func (r *rig) want(want end) ledger.Job {
	r.Helper()
	j, ok := r.Job("acme", noteKey)
	if !ok {
		r.Fatalf("there is no step %s", noteKey)
	}
	got := end{state: j.State, attempts: map[string]int{}, messages: len(r.stub.Messages()), posts: r.stub.Posts()}
	for _, a := range j.Attempts {
		got.attempts[string(a.State)+" "+a.Evidence.Class]++
	}
	if got.state != want.state || !maps.Equal(got.attempts, want.attempts) || got.messages != want.messages || got.posts != want.posts {
		r.Errorf("the end is %+v (%v)\nwant %+v", got, j.Error, want)
	}
	if (want.err == "") != (j.Error == nil) || j.Error != nil && !strings.Contains(j.Error.Text, want.err) {
		r.Errorf("the step's error is %+v, want one with %q", j.Error, want.err)
	}
	r.Drained()
	return j
}

func counts(states ...string) map[string]int {
	m := map[string]int{}
	for _, s := range states {
		m[s]++
	}
	return m
}

// What Slack can do, and what the step comes to. A lost reply is looked up: there is one message in the end, whether or not the
// first request posted it.
func TestOutcome(t *testing.T) {
	const done, found, absent = "received done", "received reconciled", "not_sent reconciled"
	kept := func(code string) slackstub.Fault { return slackstub.Fault{Keep: true, Code: code} }
	for _, c := range []struct {
		name   string
		script []slackstub.Fault
		want   end
	}{
		{"posted", nil, end{ledger.Done, counts(done), 1, 1, ""}},
		{"posted, reply lost", []slackstub.Fault{slackstub.Drop}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"lost", []slackstub.Fault{slackstub.Lost}, end{ledger.Done, counts(absent, done), 1, 2, ""}},
		{"silence", []slackstub.Fault{slackstub.Hang}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"rate limit", []slackstub.Fault{slackstub.Limit}, end{ledger.Done, counts("rejected refused", done), 1, 2, ""}},
		{"rate limit, its own form", []slackstub.Fault{{Code: "ratelimited"}}, end{ledger.Done, counts("rejected refused", done), 1, 2, ""}},
		{"no such channel", []slackstub.Fault{{Code: "channel_not_found"}}, end{ledger.Failed, counts("failed failed"), 0, 1, "PO607 Slack refused: channel_not_found"}},
		{"a fatal error, posted", []slackstub.Fault{kept("fatal_error")}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"an internal error, not posted", []slackstub.Fault{{Code: "internal_error"}}, end{ledger.Done, counts(absent, done), 1, 2, ""}},
		{"an error that nobody knows, posted", []slackstub.Fault{kept("moon_phase")}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"503, posted", []slackstub.Fault{{Keep: true, Status: 503, Body: "<html>"}}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"200 and a page, posted", []slackstub.Fault{{Keep: true, Body: "<html>"}}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"200 and nothing said, posted", []slackstub.Fault{{Keep: true, Body: "{}"}}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"ok is false and nothing said, posted", []slackstub.Fault{{Keep: true, Body: `{"ok":false}`}}, end{ledger.Done, counts(found), 1, 1, ""}},
		{"403", []slackstub.Fault{{Status: 403, Body: "no"}}, end{ledger.Failed, counts("failed failed"), 0, 1, "PO607 Slack refused: status 403"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, slackstub.Options{}, func(r *rig) {
				r.stub.Script(c.script...)
				r.Send("slack", noteBody)
				r.Idle(6 * time.Hour)
				j := r.want(c.want)
				if j.State != ledger.Done {
					return
				}
				m := r.stub.Messages()[0]
				last := j.Attempts[len(j.Attempts)-1]
				if want := fmt.Sprintf(`{"channel":%q,"ts":%q}`, m.Channel, m.TS); string(j.Result.Body) != want || last.Evidence.ObjectID != m.Channel+"/"+m.TS {
					t.Errorf("the result is %s, the object %q; want %s", j.Result.Body, last.Evidence.ObjectID, want)
				}
				if m.Text != "a &lt;!channel&gt; &amp; more" || m.Event != slack.EventType || m.Payload["key"] != noteKey || m.Payload["attempt"] != last.ClientRequestID {
					t.Errorf("the message is %+v", m)
				}
			})
		})
	}
}

// Slack says for how long, and no post is tried sooner.
func TestRetryAfter(t *testing.T) {
	bubble(t, slackstub.Options{}, func(r *rig) {
		r.stub.Script(slackstub.Fault{Status: 429, Retry: "1800"})
		r.Send("slack", noteBody)
		r.Idle(29 * time.Minute)
		if j, _ := r.Job("acme", noteKey); j.State != ledger.Ready || !strings.Contains(j.Error.Text, "PO607 Slack refused for now") || r.stub.Posts() != 1 {
			t.Errorf("the step is %s (%v) after %d posts", j.State, j.Error, r.stub.Posts())
		}
		r.Idle(time.Hour)
		r.want(end{ledger.Done, counts("rejected refused", "received done"), 1, 2, ""})
	})
}

// What proves nothing leaves the step held, and it is not posted again: a history that cannot be read, or not whole, and a post of
// the same key by another attempt. Once the history can be read the step is done.
func TestLookUpProvesNothing(t *testing.T) {
	broken := true
	for name, c := range map[string]struct {
		history func(page map[string]any)
		change  func(r *rig)
	}{
		"no list":     {history: func(p map[string]any) { delete(p, "messages") }},
		"breaks off":  {history: func(p map[string]any) { p["has_more"], p["messages"] = true, []any{} }},
		"refused":     {history: func(p map[string]any) { clear(p); p["ok"], p["error"] = false, "missing_scope" }},
		"not ok":      {history: func(p map[string]any) { clear(p); p["ok"], p["messages"] = false, []any{} }},
		"wrong token": {change: func(r *rig) { r.workspace.Client = &http.Client{Transport: strip{r.workspace.Client.Transport}} }},
		"unreachable": {change: func(r *rig) { r.workspace.Client = &http.Client{Transport: &http.Transport{DialContext: nowhere}} }},
	} {
		t.Run(name, func(t *testing.T) {
			broken = true
			opt := slackstub.Options{History: func(p map[string]any) {
				if broken && c.history != nil {
					c.history(p)
				}
			}}
			bubble(t, opt, func(r *rig) {
				good := r.workspace
				if c.change != nil {
					c.change(r)
				}
				r.stub.Script(slackstub.Drop)
				r.Send("slack", noteBody)
				r.Idle(6 * time.Hour)
				r.want(end{ledger.Unknown, counts("sent closed"), 1, 1, "PO370"})
				broken, r.workspace = false, good
				r.Idle(time.Hour)
				r.want(end{ledger.Done, counts("received reconciled"), 1, 1, ""})
			})
		})
	}
}

// strip takes the token out of requests.
type strip struct{ http.RoundTripper }

func (s strip) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body, r.ContentLength = http.NoBody, 0
	return s.RoundTripper.RoundTrip(r)
}

func nowhere(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no route")
}

// A post of the same key by another attempt is a person's to judge: it may be one of a generation before.
func TestOtherAttempt(t *testing.T) {
	bubble(t, slackstub.Options{}, func(r *rig) {
		r.stub.Put(slackstub.Message{Channel: slackstub.Channels["support"], Text: "before", Event: slack.EventType, Payload: map[string]any{"key": noteKey, "attempt": "another"}})
		r.stub.Script(slackstub.Lost)
		r.Send("slack", noteBody)
		r.Idle(6 * time.Hour)
		r.want(end{ledger.Unknown, counts("sent closed"), 1, 1, "PO370"})
	})
}

// The look-up reads every page of the time in question: the post is on the last of them, behind a day of others' that came after it.
func TestPages(t *testing.T) {
	for _, there := range []bool{true, false} {
		bubble(t, slackstub.Options{PageSize: 3}, func(r *rig) {
			r.Config.Tick = 5 * time.Minute // the first look comes after the others' posts
			r.stub.Script(slackstub.Fault{Keep: there, Cut: true})
			r.Send("slack", noteBody)
			n := r.Start("a", nil)
			time.Sleep(10 * time.Second)
			for range 10 {
				r.stub.Put(slackstub.Message{Channel: slackstub.Channels["support"], Text: "hello", Event: "of_others", Payload: map[string]any{"key": noteKey}})
			}
			time.Sleep(2 * time.Hour)
			r.End(n)
			want := end{ledger.Done, counts("received reconciled"), 11, 1, ""}
			if !there {
				want = end{ledger.Done, counts("not_sent reconciled", "received done"), 11, 2, ""}
			}
			r.want(want)
			if r.stub.Looks() < 4 {
				t.Errorf("%d pages were read", r.stub.Looks())
			}
		})
	}
}

// The worker dies at every point. There is one message in the end, without anybody's help.
func TestDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	bubble(t, slackstub.Options{}, func(r *rig) {
		r.Send("slack", noteBody)
		n := r.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(time.Minute)
		r.End(n)
	})
	looked := 0
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %t", at, after), func(t *testing.T) {
				bubble(t, slackstub.Options{}, func(r *rig) {
					var asked atomic.Int64
					r.Send("slack", noteBody)
					a := r.Start("a", mortal.Death(at, after, &asked))
					time.Sleep(2 * time.Hour)
					if !a.Gone() {
						t.Fatal("the first worker is alive")
					}
					a.Buried()
					r.Idle(6 * time.Hour)
					if j, _ := r.Job("acme", noteKey); j.State != ledger.Done || len(r.stub.Messages()) != 1 || r.stub.Posts() != 1 {
						t.Errorf("the step is %s (%v), and there are %d messages by %d posts", j.State, j.Error, len(r.stub.Messages()), r.stub.Posts())
					}
					looked += r.stub.Looks()
				})
			})
		}
	}
	if points.Load() < 4 || looked < 2 {
		t.Errorf("%d points, %d look-ups", points.Load(), looked)
	}
}

// A channel may be named by its id, which needs no list.
func TestChannelID(t *testing.T) {
	for _, channel := range []string{"C0000000002", "#sales", "sales"} {
		bubble(t, slackstub.Options{PageSize: 1}, func(r *rig) {
			r.stub.Script(slackstub.Drop)
			r.Send("slack", strings.Replace(noteBody, "#support", channel, 1))
			r.Idle(time.Hour)
			r.want(end{ledger.Done, counts("received reconciled"), 1, 1, ""})
		})
	}
}

// An incoming webhook has nothing to ask by, and its address is never shown.
func TestWebhook(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault slackstub.Fault
		want  end
	}{
		{"posted", slackstub.Accept, end{ledger.Done, counts("received done"), 1, 1, ""}},
		{"posted, reply lost", slackstub.Drop, end{ledger.Unknown, counts("sent closed"), 1, 1, "PO370"}},
		{"lost", slackstub.Lost, end{ledger.Unknown, counts("sent closed"), 0, 1, "PO370"}},
		{"500", slackstub.Fault{Keep: true, Status: 500, Body: "rollup_error"}, end{ledger.Unknown, counts("sent unsure"), 1, 1, "PO608"}},
		{"200 and a page", slackstub.Fault{Keep: true, Body: "<html>"}, end{ledger.Unknown, counts("sent unsure"), 1, 1, "PO608"}},
		{"gone", slackstub.Fault{Status: 410, Body: "channel_is_archived"}, end{ledger.Failed, counts("failed failed"), 0, 1, "channel_is_archived"}},
		{"rate limit", slackstub.Limit, end{ledger.Done, counts("rejected refused", "received done"), 1, 2, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, slackstub.Options{}, func(r *rig) {
				r.Register = func(reg *job.Registry) { job.RegisterStep(reg, slack.Webhook("slack", r.stub.WebhookURL(), write)) }
				r.stub.Script(c.fault)
				r.Send("slack", noteBody)
				r.Idle(6 * time.Hour)
				j := r.want(c.want)
				if j.Error != nil && strings.Contains(j.Error.Text, "secret") {
					t.Errorf("the error shows the address: %s", j.Error.Text)
				}
			})
		})
	}
	// Nor where nothing could be sent.
	bubble(t, slackstub.Options{}, func(r *rig) {
		r.Register = func(reg *job.Registry) {
			s := slack.Webhook("slack", "http://nobody.test/services/secret", write)
			s.MaxRuns = 1
			job.RegisterStep(reg, s)
		}
		r.Send("slack", noteBody)
		r.Idle(time.Hour)
		j := r.want(end{ledger.Failed, counts(), 0, 0, "PO371 nothing was sent to nobody.test"})
		if strings.Contains(j.Error.Text, "secret") {
			t.Errorf("the error shows the address: %s", j.Error.Text)
		}
	})
}

// A message without a channel or a text fails before anything is sent.
func TestEmpty(t *testing.T) {
	for _, body := range []string{`{"Tenant":"acme","ID":"48213","Text":"hello"}`, `{"Tenant":"acme","ID":"48213","Channel":"#support"}`} {
		bubble(t, slackstub.Options{}, func(r *rig) {
			r.Send("slack", body)
			r.Idle(time.Hour)
			r.want(end{ledger.Failed, counts(), 0, 0, "PO610"})
		})
	}
}

// A channel's name that stands for another channel since the post proves nothing by that one's history.
func TestChannelOfAnotherName(t *testing.T) {
	for name, change := range map[string]func(c map[string]any){
		"renamed": func(c map[string]any) { c["previous_names"] = []string{"sales"} },
		"new":     func(c map[string]any) { c["created"] = time.Now().Unix() },
	} {
		t.Run(name, func(t *testing.T) {
			opt := slackstub.Options{List: func(c map[string]any) {
				if c["name"] == "support" {
					c["id"] = slackstub.Channels["sales"]
					change(c)
				} else {
					c["id"] = slackstub.Channels["support"]
				}
			}}
			bubble(t, opt, func(r *rig) {
				r.stub.Script(slackstub.Drop)
				r.Send("slack", noteBody)
				r.Idle(6 * time.Hour)
				r.want(end{ledger.Unknown, counts("sent closed"), 1, 1, "PO370"})
			})
		})
	}
}

// A post is found by its attempt, also if Slack wrote the key in other letters.
func TestKeyInOtherLetters(t *testing.T) {
	opt := slackstub.Options{History: func(p map[string]any) {
		b, err := json.Marshal(p)
		if err == nil {
			err = json.Unmarshal([]byte(strings.ReplaceAll(string(b), noteKey, "acme%3Aslack")), &p)
		}
		if err != nil {
			t.Error(err)
		}
	}}
	bubble(t, opt, func(r *rig) {
		r.stub.Script(slackstub.Drop)
		r.Send("slack", noteBody)
		r.Idle(6 * time.Hour)
		r.want(end{ledger.Done, counts("received reconciled"), 1, 1, ""})
	})
}
