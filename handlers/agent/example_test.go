package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// An agent with two tools of its own beside the built-in ones: a function, since looking something up costs nothing, and
// a call, since an order must not be placed twice.
func ExampleNew() {
	stock := map[string]int{"map": 3}
	inStock := agent.Tool{
		Name:        "in_stock",
		Description: "How many pieces of a thing are in stock.",
		Schema:      json.RawMessage(`{"type":"object","properties":{"thing":{"type":"string"}},"required":["thing"]}`),
		Func: func(_ context.Context, u agent.Use) (string, error) {
			var in struct{ Thing string }
			if err := u.Read(&in); err != nil {
				return "", err // the model is told
			}
			n, ok := stock[in.Thing]
			if !ok {
				return "", agent.Tell(fmt.Errorf("there is nothing called %q", in.Thing))
			}
			return fmt.Sprint(n), nil
		},
	}
	order := agent.Tool{
		Name:        "order",
		Description: "Orders one piece of a thing.",
		Schema:      json.RawMessage(`{"type":"object","properties":{"thing":{"type":"string"}},"required":["thing"]}`),
		Call: &job.Call[agent.Use, string]{
			Name: "order",
			Routes: []job.Route[agent.Use, string]{{Name: "shop", Provider: "shop", Timeout: 30 * time.Second,
				Do: func(ctx context.Context, a *job.Attempt, u agent.Use) (string, error) {
					resp, err := a.HTTP().Post("https://shop.example/orders", "application/json", strings.NewReader(u.Arguments))
					if err != nil {
						return "", err // what became of the order is decided by what came back, and on record
					}
					defer resp.Body.Close()
					var out struct{ Number string }
					err = json.NewDecoder(resp.Body).Decode(&out)
					return "the order has number " + out.Number, err
				}}},
		},
	}
	var reg job.Registry
	job.Register(&reg, agent.New(provider.Settings{}, agent.Options{Tools: append(agent.Builtin(), inStock, order)}))
	h, _ := reg.Lookup(agent.Name)
	fmt.Println(h.Calls())
	// Output: [order tool turn]
}
