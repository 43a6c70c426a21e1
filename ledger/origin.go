package ledger

import (
	"time"
	"unicode/utf8"
)

// Origin is what is known of a job's message beside its content: evidence for people, reports
// and traces. It is never part of a key or a hash. A zero field was not said.
type Origin struct {
	Group      string    `json:"group,omitempty"`       // SQS MessageGroupId
	Sent       time.Time `json:"sent,omitzero"`         // when it was sent, by the broker's clock
	First      time.Time `json:"first,omitzero"`        // when it was handed out first, by the broker's clock
	AWSTrace   string    `json:"aws_trace,omitempty"`   // AWSTraceHeader
	Trace      string    `json:"traceparent,omitempty"` // W3C traceparent
	TraceState string    `json:"tracestate,omitempty"`  // W3C tracestate

	// Where the message wants its answer, and what it knows it by. Of more than 512 bytes they are left out: a part of an address is none.
	ReplyTo     string `json:"reply_to,omitempty"`
	Correlation string `json:"correlation_id,omitempty"`
}

// maxOrigin bounds each text of an origin, in bytes.
const maxOrigin = 512

// Clean returns the origin as a ledger keeps it: texts made storable, and those of more than 512
// bytes cut, with … for the rest. It is evidence, so nothing is refused for it.
func (o Origin) Clean() Origin {
	for _, s := range []*string{&o.Group, &o.AWSTrace, &o.Trace, &o.TraceState} {
		*s = cut(Text(*s))
	}
	for _, s := range []*string{&o.ReplyTo, &o.Correlation} {
		if *s = Text(*s); len(*s) > maxOrigin {
			*s = ""
		}
	}
	for _, t := range []*time.Time{&o.Sent, &o.First} {
		*t = t.Round(0).UTC()
		if y := t.Year(); y < 1 || y > 9999 { // no form of it could be read again
			*t = time.Time{}
		}
	}
	return o
}

// IsZero reports whether nothing is known.
func (o Origin) IsZero() bool { return o == Origin{} }

func cut(s string) string {
	const rest = "…"
	if len(s) <= maxOrigin {
		return s
	}
	n := maxOrigin - len(rest)
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + rest
}
