package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// The answer of the middle turn is lost: the task is held with the turns before it kept. A person gives it back,
// one way or the other, and it is finished; what a person replays is that one turn, and no turn before it.
func TestLostAnswerInTheMiddle(t *testing.T) {
	for name, happened := range map[string]bool{"it happened": true, "it never happened": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, twoByThree, func(r *rig) {
				r.models.Script("the task", modelserver.Fault{}, modelserver.Fault{Kind: modelserver.Close})
				r.send()
				n := r.Start("a", nil)
				time.Sleep(48 * time.Hour)
				r.want(ledger.Unknown, map[string]int{"turn received": 1, "tool received": 2, "turn sent": 1}, 2)
				if !happened {
					r.turn = map[string]int{} // the provider's log has nothing
				}
				r.resolve(twoByThree)
				time.Sleep(time.Hour)
				r.End(n)
				if happened {
					r.want(ledger.Done, whole, 4)
					return
				}
				r.mu.Lock()
				bill := map[string]int{}
				for _, input := range r.asked {
					bill[input]++
				}
				r.mu.Unlock()
				if bill[r.asked[0]] != 1 || bill[r.asked[1]] != 2 || len(bill) != 4 || len(r.models.Bill()) != 5 {
					t.Errorf("%d lines on the bill, of %d inputs", len(r.models.Bill()), len(bill))
				}
				if j := r.job(); j.State != ledger.Done || len(j.Attempts) != 11 {
					t.Errorf("the job is %s with %d attempts", j.State, len(j.Attempts))
				}
			})
		})
	}
}

// A paid tool is a call as any. Its lost answer holds the task, and what ran beside it is kept; a person says what it was,
// and it is not asked again, though the model asks for it in another turn and in other words.
func TestPaidTool(t *testing.T) {
	turns := [][]modelserver.ToolCall{
		{{Name: "buy", Arguments: `{"n":1,"what":"map"}`}, {Name: "fast", Arguments: `{"n":1}`}},
		{{Name: "buy", Arguments: `{ "what": "map", "n": 1 }`}, {Name: "buy", Arguments: `{"n":2,"what":"map"}`}},
	}
	bubble(t, turns, func(r *rig) {
		bought := 0
		call := job.Call[agent.Use, string]{Name: "buy", Memo: job.ByName, Routes: []job.Route[agent.Use, string]{{Name: "shop", Provider: "shop", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, u agent.Use) (string, error) {
				if err := a.Sent(ctx); err != nil {
					return "", err
				}
				if bought++; bought == 1 {
					return "", errors.New("connection reset")
				}
				return "bought " + u.Arguments, nil
			}}}}
		r.opt.Tools = append(r.opt.Tools, agent.Tool{Name: "buy", Call: &call, Schema: json.RawMessage(`{"type":"object"}`)})
		r.send()
		n := r.Start("a", nil)
		time.Sleep(24 * time.Hour)
		j := r.want(ledger.Unknown, map[string]int{"turn received": 1, "tool received": 1, "buy sent": 1}, 1)
		for _, a := range j.Attempts {
			e := ledger.Evidence{State: ledger.Received, By: ledger.ByPerson, Who: "ann", Reason: "on the receipt", Response: &ledger.Response{Codec: "json", Body: []byte(`"bought a map"`)}}
			if a.State == ledger.Sent {
				if _, err := r.Ledger.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Hour)
		r.End(n)
		r.want(ledger.Done, map[string]int{"turn received": 3, "tool received": 1, "buy received": 2}, 3)
		if bought != 2 {
			t.Errorf("%d purchases, want one for each thing", bought)
		}
	})
}

// A death in the middle of a tool that costs nothing holds nothing: the next worker uses it again at once.
func TestDeathInAFreeTool(t *testing.T) {
	bubble(t, twoByThree, func(r *rig) {
		r.send()
		a := r.Start("a", nil)
		time.Sleep(5 * time.Second) // turn, tools, turn; slow takes five seconds from here
		if used := r.uses(); used[`slow{"n":1}`] != 1 || used[`slow{"n":2}`] != 0 {
			t.Fatalf("used so far: %v", used)
		}
		a.Kill()
		b := r.Start("b", nil)
		time.Sleep(2 * time.Minute) // a lease, and no settle window
		r.End(b)
		r.want(ledger.Done, whole, 4)
		if want := map[string]int{`slow{"n":1}`: 2, `fast{"n":1}`: 1, `slow{"n":2}`: 1, `fast{"n":2}`: 1}; !maps.Equal(r.uses(), want) {
			t.Errorf("used %v, want %v", r.uses(), want)
		}
	})
}

// A tool that fails, or panics in its own goroutine, ends the run and not the process; the next run is given the turn
// that is paid for, and what the tools beside it said. One that fails for good fails the task, and says so.
func TestToolThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(n int) error
		state ledger.State
		class string
	}{
		"twice":    {func(n int) error { return errors.New("not reachable") }, ledger.Done, ""},
		"for good": {func(int) error { return job.Fail(errors.New("no such thing")) }, ledger.Failed, "permanent"},
		"a panic":  {func(int) error { panic("a bug") }, ledger.Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			turns := [][]modelserver.ToolCall{{{Name: "fragile", Arguments: `{}`}, {Name: "fast", Arguments: `{"n":1}`}}}
			bubble(t, turns, func(r *rig) {
				n := 0
				r.opt.Tools = append(r.opt.Tools, agent.Tool{Name: "fragile", Func: func(context.Context, agent.Use) (string, error) {
					if n++; n <= 2 {
						return "", c.fail(n)
					}
					return "it works", nil
				}})
				r.send()
				w := r.Start("a", nil)
				time.Sleep(time.Hour)
				r.End(w)
				want := map[string]int{"turn received": 2, "tool received": 2}
				if c.state == ledger.Failed {
					want = map[string]int{"turn received": 1, "tool received": 1}
				}
				j := r.want(c.state, want, want["turn received"])
				if c.class != "" && (j.Error == nil || j.Error.Class != c.class) {
					t.Errorf("the error is %v", j.Error)
				}
				if n := r.uses()[`fast{"n":1}`]; n != 1 {
					t.Errorf("the tool beside it was used %d times", n)
				}
			})
		})
	}
}

// The program changes while a task is under way: a tool is new, another is gone, a third says something else. What
// is on record does not change with it, so no turn is paid again.
func TestCodeChangesMeanwhile(t *testing.T) {
	bubble(t, twoByThree, func(r *rig) {
		r.send()
		a := r.Start("a", nil)
		time.Sleep(10500 * time.Millisecond) // in the tools of the third turn
		a.Kill()
		r.opt.Tools = []agent.Tool{
			{Name: "brand_new", Func: func(context.Context, agent.Use) (string, error) { return "new", nil }},
			{Name: "calculate", Func: func(context.Context, agent.Use) (string, error) { return "another number", nil }},
			r.counted("fast", time.Minute/10), r.counted("slow", time.Second),
		}
		b := r.Start("b", nil)
		time.Sleep(time.Hour)
		r.End(b)
		r.want(ledger.Done, whole, 4)
	})
}

// Case 63: a task that failed at its limit goes on where it was when a person retries it with a higher one: no turn that is paid for is
// made again, and no use of a tool.
func TestRetryOfAFailedTask(t *testing.T) {
	bubble(t, twoByThree, func(r *rig) {
		r.opt.MaxTurns = 2
		r.send()
		a := r.Start("a", nil)
		time.Sleep(time.Hour)
		r.End(a)
		if j := r.want(ledger.Failed, map[string]int{"turn received": 2, "tool received": 2}, 2); j.Error == nil || j.Error.Class != "permanent" {
			t.Errorf("the error is %v", j.Error)
		}
		r.opt.MaxTurns = 0
		if _, err := r.Ledger.Reopen(t.Context(), ledger.Reopening{Key: r.job().Key, Reason: "a higher limit", Who: "ann"}); err != nil {
			t.Fatal(err)
		}
		b := r.Start("b", nil)
		time.Sleep(time.Hour)
		r.End(b)
		r.want(ledger.Done, whole, 4)
	})
}

// Turns that take far longer than a lease, a visibility timeout and the limits that others have: one call each, with
// a second worker idle beside.
func TestLongTurns(t *testing.T) {
	bubble(t, twoByThree, func(r *rig) {
		r.set.Routes[0].Timeout = 30 * time.Minute
		r.Config.MaxRun = 5 * time.Hour
		r.models.Script("the task", modelserver.Fault{After: 20 * time.Minute, Times: 4})
		r.send()
		a, b := r.Start("a", nil), r.Start("b", nil)
		time.Sleep(3 * time.Hour)
		r.End(a)
		r.End(b)
		if j := r.want(ledger.Done, whole, 4); j.Runs != 1 || j.Fence != 1 {
			t.Errorf("%d runs, fence %d", j.Runs, j.Fence)
		}
	})
}

// A model that asks for very many tools gets them all, some at a time, in its order.
func TestManyToolsAtOnce(t *testing.T) {
	var turn []modelserver.ToolCall
	for i := range 30 {
		turn = append(turn, modelserver.ToolCall{Name: "count", Arguments: fmt.Sprintf(`{"n":%d}`, i)})
	}
	bubble(t, [][]modelserver.ToolCall{turn}, func(r *rig) {
		var mu sync.Mutex
		now, most := 0, 0
		r.opt.Tools = []agent.Tool{{Name: "count", Func: func(_ context.Context, u agent.Use) (string, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			var in struct{ N int }
			if err := u.Read(&in); err != nil {
				return "", err
			}
			time.Sleep(time.Duration(30-in.N) * time.Second / 2) // later ones are quicker
			mu.Lock()
			now--
			mu.Unlock()
			return fmt.Sprint("number ", in.N), nil
		}}}
		r.send()
		n := r.Start("a", nil)
		time.Sleep(time.Hour)
		r.End(n)
		r.want(ledger.Done, map[string]int{"turn received": 2, "tool received": 30}, 2)
		if most < 2 || most > 8 {
			t.Errorf("%d at once", most)
		}
	})
}

// A tool that hangs is ended by its own limit, and its task by the number of runs; the turn is paid once.
func TestToolThatHangs(t *testing.T) {
	bubble(t, [][]modelserver.ToolCall{{{Name: "hang", Arguments: `{}`}}}, func(r *rig) {
		r.set.MaxRuns = 2
		runs := 0
		r.opt.Tools = []agent.Tool{{Name: "hang", Func: func(ctx context.Context, _ agent.Use) (string, error) {
			runs++
			<-ctx.Done()
			return "", ctx.Err()
		}}}
		r.send()
		n := r.Start("a", nil)
		time.Sleep(5 * time.Minute)
		r.End(n)
		if j := r.want(ledger.Failed, map[string]int{"turn received": 1}, 1); j.Error == nil || j.Error.Class != "exhausted" || runs != 2 {
			t.Errorf("%d runs, error %v", runs, j.Error)
		}
	})
}

// Many deliveries of one task are one task, and settings reach its calls.
func TestDuplicatesOfATask(t *testing.T) {
	bubble(t, twoByThree, func(r *rig) {
		r.set.Routes = append(r.set.Routes, provider.Route{Name: "unused", Provider: provider.Anthropic, Model: "m", Timeout: time.Minute})
		for range 5 {
			r.send()
		}
		a, b := r.Start("a", nil), r.Start("b", nil)
		time.Sleep(time.Hour)
		r.End(a)
		r.End(b)
		r.want(ledger.Done, whole, 4)
		if d := r.Queue.Depth(); d != (memory.Depth{}) {
			t.Errorf("the queue holds %+v", d)
		}
	})
}
