package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// A worker is killed while one of its agents is in its first turn, one in its second and one in its last. The next worker takes
// them over where they were: what is on record is not asked again, and the answer that the dead one waited for is found at
// the provider. Each turn is paid once.
func TestAgentsGoOn(t *testing.T) { OnEach(t, agentsGoOn) }

func agentsGoOn(t *testing.T, b Broker) {
	turns := [][]modelserver.ToolCall{
		{{Name: "today", Arguments: `{}`}, {Name: "calculate", Arguments: `{"expression": "6*7"}`}},
		{{Name: "search_goal", Arguments: `{"words": "42"}`}, {Name: "calculate", Arguments: `{"expression": "42/7"}`}},
	}
	w := NewWorld(t, Options{
		Broker: b, Visibility: 6 * time.Second, Routes: map[string]string{agent.Name: "openai 60s"}, SettleWindow: 2 * time.Minute, Hold: 2 * time.Minute,
		Models: modelserver.Options{CallTools: func(r modelserver.Request) []modelserver.ToolCall {
			if r.Turn > len(turns) {
				return nil
			}
			return turns[r.Turn-1]
		}},
	})
	e := Expect{Bill: map[string]int{}}
	var docs []Doc
	for n := range 3 {
		d := Task(fmt.Sprint(n))
		docs, e.Bill[d.Key] = append(docs, d), 3
		w.Models.Script(d.Key, append(make([]modelserver.Fault, n), modelserver.Fault{Hold: true})...)
	}
	w.Submit(2, docs...)
	a := w.Start("a")
	w.Eventually(func() (bool, string) {
		lines := w.Models.BillByKey()
		return len(lines[docs[0].Key]) == 1 && len(lines[docs[1].Key]) == 2 && len(lines[docs[2].Key]) == 3, fmt.Sprintf("the bill has %v", lines)
	})
	a.Kill()
	for _, d := range docs {
		w.Models.Release(d.Key)
	}
	next := w.Start("b")
	w.Until(e)
	w.UntilQuiet()
	w.Leave(next)
	w.Check(e)
	for _, d := range docs {
		j, count := w.Job(d.Key), map[string]int{}
		for _, a := range j.Attempts {
			count[fmt.Sprint(a.Call.Name, " ", a.State, " ", a.Evidence.By)]++
		}
		if count["turn received sender"] != 2 || count["turn received reconciler"] != 1 || count["tool received sender"] != 4 || len(j.Attempts) != 7 {
			t.Errorf("%s has attempts %v\n%s", d.Key, count, story(j))
		}
	}
	if w.Models.Requests() != 9 || w.Jobs()[docs[0].Key].State != ledger.Done {
		t.Errorf("%d requests for nine turns", w.Models.Requests())
	}
}
