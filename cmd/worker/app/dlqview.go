package app

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/paidonce/paidonce/ledger"
)

type letterDocument struct {
	Key       string        `json:"key"` // "": it cannot be read
	Job       string        `json:"job"`
	Tenant    string        `json:"tenant"`
	MessageID string        `json:"message_id"`
	Reason    string        `json:"reason"`
	Receives  *int          `json:"receives"` // null: not known
	At        *time.Time    `json:"at"`       // when it was set aside; null: not known
	State     *ledger.State `json:"state"`    // null: the ledger has no such job
	Verdict   string        `json:"verdict"`
	Calls     *int          `json:"calls"`    // paid calls that a redrive would make; null: it is not redriven
	CostUSD   *string       `json:"cost_usd"` // of these; null: not known
	Fault     string        `json:"fault"`    // why it is unreadable or a mismatch
}

// letterCounts counts dead letters by verdict, and what became of them.
type letterCounts struct {
	DeadLetters int `json:"dead_letters"`
	Saved       int `json:"saved"`
	WillCall    int `json:"will_call"` // will run and make paid calls
	Calls       int `json:"calls"`     // how many of these
	Answered    int `json:"answered"`  // will run, with answers that are kept
	Unknown     int `json:"unknown"`
	Running     int `json:"running"`
	Failed      int `json:"failed"`
	Cancelled   int `json:"cancelled"`
	Mismatch    int `json:"mismatch"`
	Unreadable  int `json:"unreadable"`

	Dropped  int     `json:"dropped"`
	Redriven int     `json:"redriven"`
	Left     int     `json:"left"`
	CostUSD  *string `json:"cost_usd"` // of the calls; null: not known
}

// hiddenDocument says what is not shown, and why.
type hiddenDocument struct {
	Filtered int  `json:"filtered"`  // looked at, and not what --job, --tenant and --match ask for
	Limit    bool `json:"limit"`     // there are more than --limit
	Groups   bool `json:"groups"`    // there may be more of a FIFO group, behind those of it that stay
	BrokeOff bool `json:"broke_off"` // the look ended with an error, and there may be more
}

type dlqDocument struct {
	DryRun      bool             `json:"dry_run"` // nothing was changed
	DeadLetters []letterDocument `json:"dead_letters"`
	Summary     letterCounts     `json:"summary"`
	Hidden      hiddenDocument   `json:"hidden"`
}

// add counts a dead letter in. What becomes of it is counted as if it were applied,
// except in a dry run, where everything is left.
func (d *dlqDocument) add(l letterDocument) {
	d.DeadLetters = append(d.DeadLetters, l)
	s := &d.Summary
	s.DeadLetters++
	switch l.Verdict {
	case saved:
		s.Saved++
	case willRun:
		if s.Calls += *l.Calls; *l.Calls > 0 {
			s.WillCall++
		} else {
			s.Answered++
		}
	case isUnknown:
		s.Unknown++
	case isRunning:
		s.Running++
	case hasFailed:
		s.Failed++
	case isOff:
		s.Cancelled++
	case mismatched:
		s.Mismatch++
	case unreadable:
		s.Unreadable++
	}
	switch {
	case l.Verdict == saved && !d.DryRun:
		s.Dropped++
	case l.Verdict == willRun && !d.DryRun:
		s.Redriven++
	default:
		s.Left++
	}
	s.CostUSD = nil
	if s.Calls == 0 {
		s.CostUSD = new("0")
	}
}

// line is the summary in a sentence.
func (s letterCounts) line() string {
	var parts []string
	part := func(n int, one, many string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
		} else if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	part(s.Saved, "has a saved result (0.00)", "have a saved result (0.00)")
	part(s.Answered, "will run with answers that are kept (0.00)", "will run with answers that are kept (0.00)")
	part(s.WillCall, "will call the model", "will call the model")
	part(s.Unknown, "is unknown and will be skipped", "are unknown and will be skipped")
	part(s.Running, "is running and will be skipped", "are running and will be skipped")
	part(s.Failed, "has failed and will be skipped", "have failed and will be skipped")
	part(s.Cancelled, "is cancelled and will be skipped", "are cancelled and will be skipped")
	part(s.Mismatch, "has the key of another input and will be skipped", "have the key of another input and will be skipped")
	part(s.Unreadable, "cannot be read and will be skipped", "cannot be read and will be skipped")
	head := fmt.Sprintf("%d dead letters", s.DeadLetters)
	if s.DeadLetters == 1 {
		head = "1 dead letter"
	}
	return head + ": " + strings.Join(parts, ", ")
}

func printLetters(w io.Writer, r *review) error {
	if len(r.doc.DeadLetters) > 0 {
		if err := printTable(w, r.doc.DeadLetters); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\n", r.doc.Summary.line())
	} else if r.doc.Hidden == (hiddenDocument{}) {
		fmt.Fprintln(w, "no dead letters")
	}
	s := r.doc.Summary
	if s.WillCall > 0 {
		fmt.Fprintf(w, "paid calls: %d; their cost is known when they are answered\n", s.Calls)
	}
	for _, line := range r.hidden() {
		fmt.Fprintln(w, line)
	}
	var err error
	switch {
	case s.DeadLetters == 0:
	case r.redrive && r.doc.DryRun:
		_, err = fmt.Fprintln(w, "dry run: nothing was changed")
	case r.redrive:
		_, err = fmt.Fprintf(w, "%d dropped, %d redriven, %d left\n", s.Dropped, s.Redriven, s.Left)
	}
	return err
}

// hidden says what is not shown and why, a line for each reason.
func (r *review) hidden() (lines []string) {
	h := r.doc.Hidden
	if h.Filtered > 0 {
		lines = append(lines, fmt.Sprintf("not shown, since they are not what %s asks for: %d", oneLine(r.filter.String()), h.Filtered))
	}
	if h.Limit {
		lines = append(lines, fmt.Sprintf("there are more: --limit %d was reached; raise it", r.filter.Limit))
	}
	if h.Groups {
		lines = append(lines, fmt.Sprintf("there may be more: SQS shows at most %d of a FIFO group while these stay", groupSize))
	}
	if h.BrokeOff {
		lines = append(lines, "the look broke off: there may be more")
	}
	return lines
}

func printTable(w io.Writer, ls []letterDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVERDICT\tCALLS\tUSD\tRECEIVES\tSET ASIDE\tREASON")
	for _, l := range ls {
		calls, cost, receives := "-", "-", "unknown"
		if l.Calls != nil {
			calls, cost = fmt.Sprint(*l.Calls), text(l.CostUSD)
		}
		if l.Receives != nil {
			receives = fmt.Sprint(*l.Receives)
		}
		why := l.Reason
		if l.Fault != "" && !strings.Contains(why, l.Fault) {
			why = strings.TrimPrefix(why+"; now "+l.Fault, "; now ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(oneLine(l.Key), "message "+oneLine(l.MessageID)), l.Verdict, calls, cost, receives, clock(l.At), oneLine(why))
	}
	return t.Flush()
}

// oneLine makes a text of somebody else fit for a table on a terminal.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, s)
	const long = 200
	if r := []rune(s); len(r) > long {
		return string(r[:long]) + "…"
	}
	return s
}
