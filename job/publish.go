package job

import (
	"encoding/json"

	"github.com/paidonce/paidonce/ledger"
)

// Publish asks for a message once the job has a result: in is sent to the job of that name, which need not be one of this worker's. The
// message is on record with the result or not at all, and goes to the worker's own queue from there: at least once, however long
// the broker is away, in the order in which one job asked. Its key absorbs what is sent twice. A run that ends
// without a result asks for nothing.
//
// A side effect that a worker of this ledger makes is a [Step], which needs no broker. Publish is for workers on another ledger, for the queue's own limits, and
// for inputs that are too large for a step.
//
// Asked twice in one run with the same content it is one. An error means that the message was not asked for, as with [Step.After]: it cannot be
// encoded or yields no key (PO586), the messages of the run are too many or too large together (PO587), this worker has no broker to send
// to (PO588), the handler has returned (PO584), or work of OnCommit or RunTx asks (PO631). All are permanent, and a handler that swallows one does not get its result committed, but for PO584.
func (r *Run) Publish(name string, in Keyed) error {
	if err := r.inWork("a message to job " + name + " was asked for"); err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err == nil {
		err = in.JobKey().Check()
	}
	if err == nil { // what no ledger stores would fail the result, as something to try again
		err = ledger.Result{Messages: []ledger.MessageAsk{{Action: name, Body: []byte("{}")}}}.CheckMessages()
	}
	if err != nil {
		return r.stick(Failf("PO586 message to job %.100q: %w", name, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return Failf("PO584 a message to job %s was asked for when the handler had returned: ask in the handler itself", name)
	}
	asked, size := r.asked().messages, len(body)+ledger.WrapRoom
	for _, m := range asked {
		if m.Action == name && string(m.Body) == string(body) {
			return nil
		}
		size += len(m.Body) + ledger.WrapRoom
	}
	switch {
	case !r.cfg.Publishes:
		err = Failf("PO588 a message to job %s: this worker has no broker that it could publish to", name)
	case len(asked) == ledger.MaxMessages || size > ledger.MaxMessageBytes:
		err = Failf("PO587 %d messages of %d bytes, each counted with %d more: one result may ask for %d of %d bytes together; send references, or one message that asks for the rest",
			len(asked)+1, size, ledger.WrapRoom, ledger.MaxMessages, ledger.MaxMessageBytes)
	}
	if err != nil {
		if r.sticky == nil {
			r.sticky = err
		}
		return err
	}
	f := r.asking()
	f.messages = append(f.messages, ledger.MessageAsk{Action: name, Body: body})
	return nil
}
