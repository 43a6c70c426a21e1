package webhook_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/webhook"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// order is the message of a step.
type order struct {
	Tenant string `json:"tenant"`
	ID     string `json:"id"`
	Cents  int    `json:"cents"`
}

func (o order) JobKey() job.Key { return job.K(o.Tenant, "charge", o.ID) }

const (
	orderBody = `{"tenant":"acme","id":"77","cents":1200}`
	orderKey  = "acme:charge:77"
)

// answer is what the receiver does with one request.
type answer struct {
	do     bool // it does what it is asked for
	cut    bool // the connection is closed without a reply
	hang   time.Duration
	status int
	header http.Header
	body   string
}

// receiver is somebody's API. It counts.
type receiver struct {
	keeps bool // what it answered to a key, and gives it out again

	mu      sync.Mutex
	script  []answer // those after it are 200
	posts   int
	done    int
	kept    map[string]bool
	headers []http.Header
	bodies  []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	a := r.next(req, string(body))
	if a.hang > 0 {
		time.Sleep(a.hang)
	}
	if a.cut {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(cmp.Or(a.status, 200))
	io.WriteString(w, a.body)
}

func (r *receiver) next(req *http.Request, body string) answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts++
	r.headers, r.bodies = append(r.headers, req.Header), append(r.bodies, body)
	a := answer{do: true, body: "charged"}
	if len(r.script) > 0 {
		a, r.script = r.script[0], r.script[1:]
	}
	key := req.Header.Get("Idempotency-Key")
	if a.do && !(r.keeps && r.kept[key]) {
		r.done++
		r.kept[key] = true
	}
	return a
}

// rig is one request and its receiver, in a bubble.
type rig struct {
	*mortal.World
	to       *receiver
	endpoint webhook.Endpoint
}

const address = "http://api.shop.test/charges?secret=s3cr3t"

func bubble(t *testing.T, f func(*rig)) {
	mortal.Bubble(t, func(w *mortal.World) {
		r := &rig{w, &receiver{kept: map[string]bool{}}, webhook.Endpoint{Header: http.Header{"Authorization": {"Bearer s3cr3t"}}, Client: w.Client()}}
		srv := &http.Server{Handler: r.to}
		var served sync.WaitGroup
		l := w.Net.Listen("api.shop.test:80")
		served.Go(func() { _ = srv.Serve(l) })
		w.Register = func(reg *job.Registry) {
			job.RegisterStep(reg, webhook.Step("charge", r.endpoint, func(o order) (webhook.Request, error) { return webhook.JSON(address, o) }))
		}
		f(r)
		srv.Close()
		served.Wait()
	})
}

// end is a whole end state.
type end struct {
	state    ledger.State
	attempts map[string]int
	posts    int
	done     int // what the receiver did
	err      string
}

func (r *rig) want(want end) ledger.Job {
	r.Helper()
	j, ok := r.Job("acme", orderKey)
	if !ok {
		r.Fatalf("there is no step %s", orderKey)
	}
	got := end{state: j.State, attempts: map[string]int{}, posts: r.to.posts, done: r.to.done}
	for _, a := range j.Attempts {
		got.attempts[string(a.State)+" "+a.Evidence.Class]++
	}
	if got.state != want.state || !maps.Equal(got.attempts, want.attempts) || got.posts != want.posts || got.done != want.done {
		r.Errorf("the end is %+v (%v)\nwant %+v", got, j.Error, want)
	}
	if (want.err == "") != (j.Error == nil) || j.Error != nil && !strings.Contains(j.Error.Text, want.err) {
		r.Errorf("the step's error is %+v, want one with %q", j.Error, want.err)
	}
	if j.Error != nil && strings.Contains(j.Error.Text, "s3cr3t") {
		r.Errorf("the error shows the address: %s", j.Error.Text)
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

// What a receiver can answer, and what the step comes to where it promises nothing about keys.
func TestOutcome(t *testing.T) {
	const done, refused, failed, unsure = "received done", "rejected refused", "failed failed", "sent unsure"
	retry := http.Header{"Retry-After": {"7"}}
	for _, c := range []struct {
		name   string
		script []answer
		want   end
	}{
		{"200", nil, end{ledger.Done, counts(done), 1, 1, ""}},
		{"204", []answer{{do: true, status: 204}}, end{ledger.Done, counts(done), 1, 1, ""}},
		{"202 and an error of its own", []answer{{do: true, status: 202, body: `{"error":"none","status":"queued"}`}}, end{ledger.Done, counts(done), 1, 1, ""}},
		{"done, reply lost", []answer{{do: true, cut: true}}, end{ledger.Unknown, counts("sent closed"), 1, 1, "PO370"}},
		{"lost", []answer{{cut: true}}, end{ledger.Unknown, counts("sent closed"), 1, 0, "PO370"}},
		{"silence", []answer{{do: true, hang: time.Hour}}, end{ledger.Unknown, counts("sent timeout"), 1, 1, "PO370"}},
		{"400", []answer{{status: 400, body: "cents?"}}, end{ledger.Failed, counts(failed), 1, 0, `PO612 refused: api.shop.test answered 400 "cents?"`}},
		{"307", []answer{{status: 307, header: http.Header{"Location": {"http://api.shop.test/other"}}}}, end{ledger.Failed, counts(failed), 1, 0, "answered 307"}},
		{"401", []answer{{status: 401}}, end{ledger.Failed, counts(failed), 1, 0, "answered 401"}},
		{"501", []answer{{status: 501}}, end{ledger.Failed, counts(failed), 1, 0, "answered 501"}},
		{"408", []answer{{do: true, status: 408}}, end{ledger.Unknown, counts(unsure), 1, 1, "PO613"}},
		{"409", []answer{{status: 409}}, end{ledger.Done, counts(refused, done), 2, 1, ""}},
		{"425", []answer{{status: 425}}, end{ledger.Done, counts(refused, done), 2, 1, ""}},
		{"429", []answer{{status: 429, header: retry}}, end{ledger.Done, counts(refused, done), 2, 1, ""}},
		{"500", []answer{{do: true, status: 500}}, end{ledger.Unknown, counts(unsure), 1, 1, "PO613"}},
		{"502", []answer{{do: true, status: 502}}, end{ledger.Unknown, counts(unsure), 1, 1, "PO613"}},
		{"503 and a wait", []answer{{do: true, status: 503, header: retry}}, end{ledger.Unknown, counts(unsure), 1, 1, "PO613"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.to.script = c.script
				r.Send("charge", orderBody)
				r.Idle(6 * time.Hour)
				r.want(c.want)
			})
		})
	}
}

// What goes out, and what is kept of the answer.
func TestRequest(t *testing.T) {
	for _, c := range []struct {
		name, result string
		answer       answer
	}{
		{"whole", `{"status":201,"body":"{\"id\":\"ch_1\"}"}`, answer{do: true, status: 201, body: `{"id":"ch_1"}`}},
		{"broken off", `{"status":200,"body":"half","cut":true}`, answer{do: true, body: "half", header: http.Header{"Content-Length": {"100"}}}},
		{"too long", `{"status":200,"body":"` + strings.Repeat("x", webhook.MaxAnswer) + `","cut":true}`, answer{do: true, body: strings.Repeat("x", webhook.MaxAnswer+1)}},
	} {
		bubble(t, func(r *rig) {
			r.to.script = []answer{c.answer}
			r.Send("charge", orderBody)
			r.Idle(time.Hour)
			j := r.want(end{ledger.Done, counts("received done"), 1, 1, ""})
			if string(j.Result.Body) != c.result {
				t.Errorf("%s: the result is %.200s, want %.200s", c.name, j.Result.Body, c.result)
			}
			if a := j.Attempts[0]; a.Evidence.Status != cmp.Or(c.answer.status, 200) {
				t.Errorf("%s: the attempt is on record with status %d", c.name, a.Evidence.Status)
			}
			h, key := r.to.headers[0], webhook.Key(ledger.Key{Tenant: "acme", Text: orderKey})
			if h.Get("Idempotency-Key") != key || len(key) != 64 || h.Get("Authorization") != "Bearer s3cr3t" || h.Get("Content-Type") != "application/json" || r.to.bodies[0] != orderBody {
				t.Errorf("%s: the request is %v, %s", c.name, h, r.to.bodies[0])
			}
		})
	}
}

// A receiver that keeps what it answered to a key is asked by the same request, until it answers: what was asked for is done once.
func TestWindow(t *testing.T) {
	lost, found := answer{do: true, cut: true}, "received reconciled"
	for _, c := range []struct {
		name   string
		script []answer
		want   end
	}{
		{"done, reply lost", []answer{lost}, end{ledger.Done, counts(found), 2, 1, ""}},
		{"lost", []answer{{cut: true}}, end{ledger.Done, counts(found), 2, 1, ""}},
		{"lost twice", []answer{lost, {cut: true}}, end{ledger.Done, counts(found), 3, 1, ""}},
		{"under way", []answer{lost, {status: 409}, {status: 409}}, end{ledger.Done, counts(found), 4, 1, ""}},
		{"409 at once", []answer{{status: 409}}, end{ledger.Done, counts(found), 2, 1, ""}},
		{"a refusal says nothing", []answer{lost, {status: 401}, {status: 400}, {status: 422}, {status: 429}, {status: 500}}, end{ledger.Done, counts(found), 7, 1, ""}},
		{"refused", []answer{{status: 400}}, end{ledger.Failed, counts("failed failed"), 1, 0, "PO612"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.to.keeps, r.to.script = true, c.script
				r.endpoint.Window = 23 * time.Hour
				r.Send("charge", orderBody)
				r.Idle(22 * time.Hour)
				r.want(c.want)
				for i, h := range r.to.headers {
					if h.Get("Idempotency-Key") != r.to.headers[0].Get("Idempotency-Key") || r.to.bodies[i] != r.to.bodies[0] {
						t.Errorf("request %d differs from the first: %v, %s", i+1, h, r.to.bodies[i])
					}
				}
			})
		})
	}
}

// While the receiver says that a request of the key is under way no policy applies.
func TestUnderWay(t *testing.T) {
	bubble(t, func(r *rig) {
		r.to.keeps, r.to.script = true, []answer{{do: true, cut: true}}
		for range 12 { // hours: looks become rare
			r.to.script = append(r.to.script, answer{status: 409})
		}
		r.endpoint.Window = 23 * time.Hour
		r.Register = func(reg *job.Registry) {
			s := webhook.Step("charge", r.endpoint, func(o order) (webhook.Request, error) { return webhook.JSON(address, o) })
			s.OnUnknown = job.FailUnknown()
			job.RegisterStep(reg, s)
		}
		r.Send("charge", orderBody)
		r.Idle(22 * time.Hour)
		r.want(end{ledger.Done, counts("received reconciled"), 14, 1, ""})
	})
}

// When the window is over nothing is repeated any more, whatever time passes.
func TestWindowOver(t *testing.T) {
	bubble(t, func(r *rig) {
		r.to.keeps = true
		for range 1000 {
			r.to.script = append(r.to.script, answer{do: true, cut: true})
		}
		r.endpoint.Window = 23 * time.Hour
		r.Send("charge", orderBody)
		r.Idle(23 * time.Hour)
		posts := r.to.posts
		r.Idle(72 * time.Hour)
		r.want(end{ledger.Unknown, counts("sent closed"), posts, 1, "PO370"})
		if posts < 10 || posts > 500 {
			t.Errorf("%d requests in the window", posts)
		}
	})
}

// The worker dies at every point. What was asked for is done once without anybody's help by a receiver with keys; without, it
// is done once or held.
func TestDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	bubble(t, func(r *rig) {
		r.Send("charge", orderBody)
		n := r.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(time.Minute)
		r.End(n)
	})
	held := 0
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			for _, keys := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d after %t, keys %t", at, after, keys), func(t *testing.T) {
					bubble(t, func(r *rig) {
						var asked atomic.Int64
						if keys {
							r.to.keeps, r.endpoint.Window = true, 23*time.Hour
						}
						r.Send("charge", orderBody)
						a := r.Start("a", mortal.Death(at, after, &asked))
						time.Sleep(2 * time.Hour)
						if !a.Gone() {
							t.Fatal("the first worker is alive")
						}
						a.Buried()
						r.Idle(6 * time.Hour)
						j, _ := r.Job("acme", orderKey)
						switch {
						case j.State == ledger.Done && r.to.done == 1:
						case !keys && j.State == ledger.Unknown && r.to.done <= 1:
							held++
						default:
							t.Errorf("the step is %s (%v), and it was done %d times by %d requests", j.State, j.Error, r.to.done, r.to.posts)
						}
					})
				})
			}
		}
	}
	if points.Load() < 4 || held < 2 {
		t.Errorf("%d points, %d steps held", points.Load(), held)
	}
}

// An address that is none fails before anything is sent.
func TestAddress(t *testing.T) {
	for _, bad := range []string{"", "api.shop.test/s3cr3t", "ftp://api.shop.test/s3cr3t", "http:///s3cr3t", "http://api.shop.test:s3cr3t/"} {
		bubble(t, func(r *rig) {
			r.Register = func(reg *job.Registry) {
				job.RegisterStep(reg, webhook.Step("charge", r.endpoint, func(o order) (webhook.Request, error) { return webhook.JSON(bad, o) }))
			}
			r.Send("charge", orderBody)
			r.Idle(time.Hour)
			r.want(end{ledger.Failed, counts(), 0, 0, "PO614"})
		})
	}
}

// On real sockets, and with connections that a server keeps open and then gives up: a request with a key goes out once.
func TestSendsOnce(t *testing.T) {
	posts := flaky(t)
	w := mortal.New(t)
	w.Real = true
	w.Register = func(reg *job.Registry) {
		job.RegisterStep(reg, webhook.Step("charge", webhook.Endpoint{}, func(o order) (webhook.Request, error) { return webhook.JSON(posts.url, o) }))
	}
	n := w.Start("a", nil)
	for _, id := range []string{"1", "2", "3"} {
		w.Send("charge", strings.Replace(orderBody, "77", id, 1))
		ended(w, "acme:charge:"+id)
	}
	w.End(n)
	if posts.Load() != 3 {
		t.Errorf("three steps made %d requests", posts.Load())
	}
	// The same by a plain client: this is what it would be.
	posts.Store(0)
	plain := &http.Client{Transport: &http.Transport{}}
	for range 3 {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, posts.url, strings.NewReader(orderBody))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if posts.Load() <= 3 {
		t.Fatalf("a plain client made %d requests of three; the test above proves nothing", posts.Load())
	}
}
