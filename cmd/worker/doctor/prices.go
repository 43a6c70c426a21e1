package doctor

import "fmt"

// Unpriced is a route whose calls would have no cost.
type Unpriced struct {
	Job      string `json:"job"`
	Route    string `json:"route"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Why      string `json:"why"`              // with its code
	Limits   string `json:"limits,omitempty"` // settings in dollars that do not count what it costs
}

// String is the route and why, in a line.
func (u Unpriced) String() string { return fmt.Sprintf("job %s, route %s: %s", u.Job, u.Route, u.Why) }

// finding says that nobody will know what the route costs.
func (u Unpriced) finding() Finding {
	if u.Limits != "" {
		return Finding{"PO628", Warning, "prices", u.String() + "; so what it costs does not count under " + u.Limits,
			"add the model to a file of prices, and set prices to it (docs/cost.md), or limit the job by max_calls"}
	}
	return Finding{"PO557", Warning, "prices", u.String(), "add the model to a file of prices, and set prices to it (docs/cost.md)"}
}
