package app

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/paidonce/paidonce/ledger"
)

// What becomes of a job that is to be retried.
const (
	isRetried  = "retried"
	wouldRetry = "would_retry"
	needsLeave = "needs_leave" // calls of it may have been paid, and --accept-double-pay was not said
	notFailed  = "not_failed"
	inputGone  = "no_input"
)

type retryDocument struct {
	DryRun  bool      `json:"dry_run"` // nothing was changed
	Jobs    []retried `json:"jobs"`
	More    bool      `json:"more"` // --limit was reached: there may be more
	Summary struct {
		Retried        int     `json:"retried"` // or, in a dry run, would be
		Left           int     `json:"left"`
		AnswersKept    int     `json:"answers_kept"`
		CallsAgain     int     `json:"calls_again"`
		MaybePaidTwice int     `json:"maybe_paid_twice"`
		SavedUSD       *string `json:"saved_usd"` // null: not known of all answers that are kept
	} `json:"summary"`
	Waiting  bool `json:"-"` // they wait for a budget of the day
	saved    ledger.Nano
	unpriced bool
}

type retried struct {
	Key            string  `json:"key"`
	Job            string  `json:"job"`
	Tenant         string  `json:"tenant"`
	ErrorClass     string  `json:"error_class"`
	Verdict        string  `json:"verdict"`
	AnswersKept    int     `json:"answers_kept"`     // calls that are not made again
	SavedUSD       *string `json:"saved_usd"`        // what these had cost; null: not known
	CallsAgain     int     `json:"calls_again"`      // calls that had been made and have no answer; those never made come on top
	MaybePaidTwice int     `json:"maybe_paid_twice"` // of these, those whose outcome nobody knows
	saved          ledger.Nano
}

// forecast says what a retry of the job would use again, and pay again.
func forecast(j ledger.Job) retried {
	x := retried{Key: j.Key.Text, Job: j.Action, Tenant: j.Key.Tenant}
	if j.Error != nil {
		x.ErrorClass = j.Error.Class
	}
	type fate struct{ answered, unknown bool }
	calls, known := map[ledger.CallRef]fate{}, true
	for _, a := range j.Attempts {
		if a.Generation != j.Generation {
			continue
		}
		f := calls[a.Call]
		if a.State == ledger.Received && !f.answered {
			f.answered = true
			if a.Evidence.Cost == nil {
				known = false
			} else {
				x.saved += *a.Evidence.Cost
			}
		}
		f.unknown = f.unknown || a.State == ledger.UnknownAttempt
		calls[a.Call] = f
	}
	for _, f := range calls {
		switch {
		case f.answered:
			x.AnswersKept++
		case f.unknown:
			x.MaybePaidTwice++
			x.CallsAgain++
		default:
			x.CallsAgain++
		}
	}
	if known {
		x.SavedUSD = usd(&x.saved)
	}
	return x
}

func (d *retryDocument) add(x retried) {
	d.Jobs = append(d.Jobs, x)
	s := &d.Summary
	if x.Verdict != isRetried && x.Verdict != wouldRetry {
		s.Left++
	} else {
		s.Retried++
		s.AnswersKept += x.AnswersKept
		s.CallsAgain += x.CallsAgain
		s.MaybePaidTwice += x.MaybePaidTwice
		d.saved += x.saved
		d.unpriced = d.unpriced || x.SavedUSD == nil
	}
	if s.SavedUSD = usd(&d.saved); d.unpriced {
		s.SavedUSD = nil
	}
}

// verdict is an error where a job that was to be retried is left.
func (d *retryDocument) verdict() error {
	if d.DryRun || d.Summary.Left == 0 {
		return nil
	}
	return fmt.Errorf("PO521 %d of %d jobs were not retried; the list says why", d.Summary.Left, len(d.Jobs))
}

func printRetried(w io.Writer, d retryDocument) error {
	if len(d.Jobs) == 0 {
		fmt.Fprintln(w, map[bool]string{false: "No failed jobs.", true: "No job waits for a budget of the day that is not due already."}[d.Waiting])
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tFAILED AS\tVERDICT\tANSWERS KEPT\tCALLS AGAIN\tMAYBE PAID TWICE")
	for _, x := range d.Jobs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\n", oneLine(x.Key), oneLine(x.ErrorClass), x.Verdict, x.AnswersKept, x.CallsAgain, x.MaybePaidTwice)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if d.More {
		fmt.Fprintf(w, "--limit is reached: there may be more jobs.\n")
	}
	s, would := d.Summary, ""
	if d.DryRun {
		would = "would be "
	}
	_, err := fmt.Fprintf(w, "%d jobs %sretried, %d left. %d answers are kept (%s USD is not paid again); %d calls that had been made are made again, %d of them without knowing whether they were paid. Calls that were never made come on top.\n",
		s.Retried, would, s.Left, s.AnswersKept, text(s.SavedUSD), s.CallsAgain, s.MaybePaidTwice)
	return err
}

// dollarsOr is a sum for people, or what to say where nobody knows it.
func dollarsOr(n *ledger.Nano, unknown string) string {
	if n == nil {
		return unknown
	}
	return "$" + n.String()
}
