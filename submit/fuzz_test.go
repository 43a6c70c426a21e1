package submit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/submit"
)

// FuzzSubmit: whatever a program submits is refused with a code, or is on record under the key and hash that the worker reads from
// it; the same again is the same job, and another input under its key is told apart.
func FuzzSubmit(f *testing.F) {
	f.Add("acme", "1", "acme", "2")
	f.Add("acme", "1", "acme", "1")
	f.Add("a:b", "%3A\t", "a", "b:%3A")
	f.Add("", "\xff", "\x00", strings.Repeat("x", 2000))
	f.Fuzz(func(t *testing.T, tenant, doc, tenant2, doc2 string) {
		store := memory.New()
		c := submit.Client[ask, answer]{Job: "ask", Ledger: store}
		var reg job.Registry
		job.Register(&reg, job.Def[ask, answer]{Name: "ask", Handle: func(context.Context, *job.Run, ask) (answer, error) { return answer{}, nil }})
		h, _ := reg.Lookup("ask")
		keys := map[ledger.Key]string{}
		for _, in := range []ask{{Tenant: tenant, Doc: doc}, {Tenant: tenant2, Doc: doc2}, {Tenant: tenant, Doc: doc}} {
			ticket, err := c.Submit(t.Context(), in)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "submit to ask: PO4") {
					t.Fatalf("%+v: %v", in, err)
				}
				continue
			}
			body, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := keys[ticket.Key]; ok == ticket.New || ok && before != string(body) {
				t.Fatalf("%s is new: %t, for %s after %s", ticket.Key, ticket.New, body, before)
			}
			keys[ticket.Key] = string(body)
			read, err := h.Decode(body)
			j, jerr := store.Job(t.Context(), ticket.Key)
			if err := errors.Join(err, jerr); err != nil || read.Key.Ledger() != ticket.Key || j.InputHash != read.Hash || j.State != ledger.Ready {
				t.Fatalf("%s: on record %+v, the worker reads %s %s: %v", ticket.Key, j, read.Key, read.Hash, err)
			}
		}
	})
}
