package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// findOut is a person who looks into the provider's log for every call whose outcome is unknown, and says what is there. It
// reports whether anything was found out.
func (w *world) findOut() (any bool) {
	for _, j := range w.rows() {
		if j.State != ledger.Unknown {
			continue
		}
		for _, a := range j.Attempts {
			if a.State != ledger.Sent {
				continue
			}
			e, ok := w.evidence(j, a)
			if !ok {
				continue
			}
			e.By, e.Who = ledger.ByPerson, "jobtest"
			if _, err := w.Ledger.Settle(context.Background(), ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: a.ID}, e); err != nil {
				w.Errorf("jobtest: settling an attempt of %s: %v", j.Key, err)
			}
			any = true
		}
	}
	return any
}

// evidence is what the log has of an attempt. ok is false where there is no log.
func (w *world) evidence(j ledger.Job, a ledger.AttemptRow) (e ledger.Evidence, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gate(a.ID.String())
	none := ledger.Evidence{State: ledger.NotSent, Reason: "it is not in the provider's log"}
	for _, l := range w.lines {
		switch {
		case l.gate == nil || l.gate != g || !l.paid:
		case l.billed() && a.Call.Name == stepCall:
			return w.made(j)
		case l.billed():
			return ledger.Evidence{State: ledger.Received, Reason: "found in the provider's log", Response: l.response()}, true
		default:
			return ledger.Evidence{State: ledger.Rejected, Reason: "the provider's log says that it was refused"}, true
		}
	}
	switch {
	case g == nil || g.wired:
		return none, true
	case a.Call.Name == stepCall && g.did:
		return w.made(j)
	case a.Call.Name == stepCall && w.doubtful(g):
		return e, false
	case a.Call.Name == stepCall, w.overHTTP(a.Call.Name, j.Action):
		return none, true
	}
	return e, false // made by Attempt.Sent: nobody can be asked
}

// overHTTP reports whether any request of that call went out over HTTP in the run without faults, or in this one.
func (w *world) overHTTP(call, action string) bool {
	for _, l := range w.lines {
		if l.gate != nil && l.gate.Call.Name == call && l.gate.job == action {
			return true
		}
	}
	return w.c.http[action+" "+call]
}

// made says that the effect of a step was made; its result is the first plain value that reads as one.
func (w *world) made(j ledger.Job) (ledger.Evidence, bool) {
	reg := new(job.Registry)
	w.c.register(reg)
	h, ok := reg.Lookup(j.Action)
	if !ok {
		return ledger.Evidence{}, false
	}
	call, _ := h.Call(stepCall)
	for _, v := range []string{"null", `""`, "{}", "[]", "0", "false"} {
		if call.Reads([]byte(v)) == nil {
			return ledger.Evidence{State: ledger.Received, Reason: "it was made", Response: &ledger.Response{Codec: "json", Body: []byte(v)}}, true
		}
	}
	return ledger.Evidence{}, false
}

// response is an answer in the form in which the guarded transport keeps it.
func (l *line) response() *ledger.Response {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", l.status, http.StatusText(l.status))
	h := l.header.Clone()
	h.Set("Content-Length", strconv.Itoa(len(l.body)))
	_ = h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	b.Write(l.body)
	return &ledger.Response{Codec: "http", Body: b.Bytes()}
}
