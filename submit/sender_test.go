package submit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	memledger "github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/submit"
)

// Case 67: a producer needs no handler and no ledger, the queue alone.
func ExampleSender() {
	queue := memory.New(memory.Options{})
	asks := submit.Sender[ask]{Job: "ask", Broker: queue}
	for range 2 { // a double click is two messages, and one job
		key, err := asks.Send(context.Background(), ask{"acme", "1", "text"})
		fmt.Println(key.Text, err)
	}
	fmt.Println("ready:", queue.Depth().Ready)
	// Output:
	// acme:ask:1 <nil>
	// acme:ask:1 <nil>
	// ready: 2
}

// refusing takes no messages.
type refusing struct{ err error }

func (r refusing) Publish(context.Context, ...broker.Message) error { return r.err }

// What is sent is what a worker reads, and what cannot be sent says so.
func TestSender(t *testing.T) {
	queue := memory.New(memory.Options{})
	if _, err := (submit.Sender[ask]{Job: "ask", Broker: queue}).Send(t.Context(), ask{"acme", "1", "text"}); err != nil {
		t.Fatal(err)
	}
	got, err := queue.Receive(t.Context(), 1)
	if err != nil || len(got) != 1 || got[0].Attributes["job"] != "ask" || len(got[0].Attributes) != 1 {
		t.Fatalf("received %+v, %v", got, err)
	}
	client := submit.Client[ask, answer]{Job: "ask", Ledger: memledger.New()}
	if s, err := client.Prepare(t.Context(), ask{"acme", "1", "text"}); err != nil || string(s.Input) != string(got[0].Body) {
		t.Errorf("a client's input is %s, %v, and the message has %s", s.Input, err, got[0].Body)
	}
	gone := errors.New("connection reset")
	key, err := submit.Sender[ask]{Job: "ask", Broker: refusing{gone}}.Send(t.Context(), ask{"acme", "1", "text"})
	if !errors.Is(err, gone) || key.Text != "acme:ask:1" {
		t.Errorf("refused: %s, %v", key.Text, err)
	}
	if _, err := (submit.Sender[ask]{Job: "ask", Broker: queue}).Send(t.Context(), ask{"", "1", "text"}); err == nil || queue.Depth().Ready != 0 {
		t.Errorf("a key without a tenant is sent: %v", err)
	}
}
