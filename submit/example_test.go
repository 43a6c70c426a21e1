package submit_test

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/broker/memory"
	memledger "github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/submit"
)

// A program that only submits has no handler and no consumer; the ledger and the queue are those of the workers.
func ExampleClient() {
	asks := submit.Client[ask, answer]{Job: "ask", Ledger: memledger.New(), Broker: memory.New(memory.Options{})}
	for range 2 { // a double click
		ticket, err := asks.Submit(context.Background(), ask{"acme", "1", "text"})
		fmt.Println(ticket.Key.Text, "new:", ticket.New, "sent:", ticket.Sent, err)
	}
	got, err := asks.Get(context.Background(), ask{"acme", "1", "text"}.JobKey().Ledger())
	fmt.Println(got.State, err)
	// Output:
	// acme:ask:1 new: true sent: true <nil>
	// acme:ask:1 new: false sent: true <nil>
	// ready <nil>
}
