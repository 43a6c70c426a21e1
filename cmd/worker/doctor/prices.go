package doctor

import "fmt"

// Unpriced is a route whose calls would have no cost.
type Unpriced struct {
	Job      string `json:"job"`
	Route    string `json:"route"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Why      string `json:"why"` // with its code
}

// String is the route and why, in a line.
func (u Unpriced) String() string { return fmt.Sprintf("job %s, route %s: %s", u.Job, u.Route, u.Why) }

// finding says that nobody will know what the route costs.
func (u Unpriced) finding() Finding {
	return Finding{"PO557", Warning, "prices", u.String(), "add the model to a file of prices, and set prices to it (docs/cost.md)"}
}
