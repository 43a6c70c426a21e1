package consumer

import (
	"testing"

	"github.com/paidonce/paidonce/broker"
)

// TestEnvelopeKeepsOneBody: the input of a message that names its job in its body is a part of that body, and not kept beside it. Nobody can append to
// it over what follows.
func TestEnvelopeKeepsOneBody(t *testing.T) {
	for _, c := range []struct{ body, input string }{
		{`{"job":"ask","input":{"doc":"1"}}`, `{"doc":"1"}`},
		{`{"input" : {"doc": "1"} , "job":"ask", "more":[{"doc":"1"}]}`, `{"doc": "1"}`},
		{`{"job":"ask","input":{"doc":"0"},"input":{"doc":"1"}}`, `{"doc":"1"}`}, // the last counts
	} {
		body := []byte(c.body)
		name, input, err := envelope(broker.Message{Body: body})
		if err != nil || name != "ask" || string(input) != c.input || cap(input) != len(input) {
			t.Fatalf("%s: %q %q of %d, %v", c.body, name, input, cap(input), err)
		}
		clear(body)
		if input[0] != 0 {
			t.Errorf("%s: the input is a copy", c.body)
		}
	}
	if got := within([]byte("ab"), []byte("c")); string(got) != "c" {
		t.Errorf("what is elsewhere became %q", got)
	}
}
