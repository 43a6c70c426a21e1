package demo

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// The demo is real, so its test is too: the bill at its end is the model server's.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		`acme:ticket\.summary:48213:v1:p7 +3 +1 +2 +0\.0000\d+\n`,
		`acme:ticket\.summary:48214:v1:p7 +1 +1 +1 +0\.0000\d+\n`,
		`acme:ticket\.summary:48215:v1:p7 +2 +1 +2 +0\.0000\d+\n`,
		`3 calls made \(0\.000\d+ USD\), 5 avoided \(0\.000\d+ USD saved\), 0 wasted \(0 USD\)\.`,
		`Every key was paid once, and the ledger has booked what the bill says\.`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the demo does not say %s:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 30 {
		t.Errorf("the demo has %d lines; it should fit on one screen", n)
	}
}

// A key that was paid twice ends the demo with an error, whatever the ledger says.
func TestBillFindsDoublePay(t *testing.T) {
	var out bytes.Buffer
	s, err := newStage(&out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.enter("worker-a"); err != nil {
		t.Fatal(err)
	}
	for _, ticket := range []string{asked3x, killed, lost} {
		if err := s.send(t.Context(), ticket, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.until(t.Context(), ticket, done); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.bill(t.Context()); err != nil {
		t.Fatalf("three keys, each paid once: %v", err)
	}
	// A worker with an empty ledger does not know what was paid.
	real := s.ledger
	if s.ledger, err = newLedger(s.dir, "empty.db"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.enter("worker-without-memory"); err != nil {
		t.Fatal(err)
	}
	s.actors[0].leave()
	if err := s.send(t.Context(), killed, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.until(t.Context(), killed, func(j ledger.Job) bool { return j.State == ledger.Done }); err != nil {
		t.Fatal(err)
	}
	empty := s.ledger
	s.ledger = real
	defer empty.Close()
	out.Reset()
	err = s.bill(t.Context())
	if err == nil || !strings.Contains(err.Error(), "48214:v1:p7 was paid 2 times") || !strings.Contains(out.String(), "1 wasted (0.0000") {
		t.Errorf("error %v after a double payment, and the bill says\n%s", err, out.String())
	}
}
