package demo

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

func (s *stage) duplicate(ctx context.Context) error {
	s.say("1  Duplicates. Ticket %s is sent three times.", asked3x)
	if _, err := s.enter("worker-a"); err != nil {
		return err
	}
	if err := s.send(ctx, asked3x, 2); err != nil {
		return err
	}
	if _, err := s.until(ctx, asked3x, done); err != nil {
		return err
	}
	s.say("     worker-a    calls the model once, for whichever message came first")
	if err := s.send(ctx, asked3x, 1); err != nil {
		return err
	}
	if err := s.count.wait(ctx, func(t tally) bool { return t.answered == 2 }); err != nil {
		return err
	}
	s.say("     worker-a    answers the second and the third from the ledger: %s\n", calls(s, asked3x))
	return nil
}

func (s *stage) kill(ctx context.Context) error {
	s.say("2  A killed worker. It has paid for the answer of ticket %s and dies before the result is saved.", killed)
	a := s.actors[0]
	died := a.plug.pullAfterAnswer()
	if err := s.send(ctx, killed, 1); err != nil {
		return err
	}
	select {
	case <-died:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the answer of ticket %s: %w", killed, context.Cause(ctx))
	}
	a.leave()
	s.say("     worker-a    killed; the job is still its own, and its message hidden, until lease and visibility end")
	if _, err := s.enter("worker-b"); err != nil {
		return err
	}
	j, err := s.until(ctx, killed, done)
	if err != nil {
		return err
	}
	s.say("     worker-b    takes over (run %d, fence %d) and uses the answer that was kept: %s\n", j.Runs, j.Fence, calls(s, killed))
	return nil
}

func (s *stage) lostAnswer(ctx context.Context) error {
	s.say("3  A lost answer. The model answers ticket %s, and the connection dies under it.", lost)
	s.models.Script(key(lost), modelserver.Fault{Kind: modelserver.Reset})
	s.listing.lag(true)
	if err := s.send(ctx, lost, 1); err != nil {
		return err
	}
	j, err := s.until(ctx, lost, func(j ledger.Job) bool { return j.State == ledger.Unknown })
	if err != nil {
		return err
	}
	a := j.Attempts[len(j.Attempts)-1]
	s.say("     ledger      unknown: 1 call sent at %s as %.8s…, outcome %q", a.SentAt.Format(time.TimeOnly), a.ClientRequestID, a.Evidence.Class)
	if err := s.send(ctx, lost, 1); err != nil { // a duplicate changes nothing
		return err
	}
	if err := s.count.wait(ctx, func(t tally) bool { return t.held == 1 }); err != nil {
		return err
	}
	if j, err = s.until(ctx, lost, func(ledger.Job) bool { return true }); err != nil {
		return err
	}
	if j.State != ledger.Unknown {
		return fmt.Errorf("job %s is %s before there was evidence", j.Key, j.State)
	}
	s.say("     worker-b    holds it: another message for it is told the same, and nothing is sent: %s", calls(s, lost))
	s.listing.lag(false)
	if j, err = s.until(ctx, lost, done); err != nil {
		return err
	}
	s.say("     reconciler  finds the answer in the provider's store, and the job is done with it: %s", calls(s, lost))
	s.say("                 (without evidence: worker jobs resolve, or the policy that the job was given)\n")
	return nil
}

// bill compares the model server's bill with what was asked for.
func (s *stage) bill(ctx context.Context) error {
	var errs []error
	var total, saved, wasted ledger.Nano
	made, avoided, surplus := 0, 0, 0
	t := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "The bill of the model server\nkey\tmessages\tcalls\tavoided\tUSD")
	for _, ticket := range []string{asked3x, killed, lost} {
		j, err := s.until(ctx, ticket, done)
		errs = append(errs, err)
		lines := s.models.BillByKey()[key(ticket)]
		sum := ledger.Nano(0)
		for i, l := range lines {
			sum += ledger.Nano(l.Price)
			if i > 0 {
				surplus++
				wasted += ledger.Nano(l.Price)
			}
		}
		if len(lines) != 1 || len(j.Attempts) != 1 || j.Attempts[0].State != ledger.Received {
			errs = append(errs, fmt.Errorf("key %s was paid %d times, and its %d attempts do not say received once", key(ticket), len(lines), len(j.Attempts)))
		}
		if j.Cost == nil || *j.Cost != sum {
			errs = append(errs, fmt.Errorf("the ledger has booked %v for key %s, and the bill says %s", j.Cost, key(ticket), sum))
		}
		count := s.count.of(key(ticket))
		spared := count.avoided()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", key(ticket), count.messages, len(lines), spared, sum)
		total, made, avoided = total+sum, made+len(lines), avoided+spared
		saved += sum * ledger.Nano(spared)
	}
	errs = append(errs, t.Flush())
	s.say("\n%d calls made (%s USD), %d avoided (%s USD saved), %d wasted (%s USD).", made, total, avoided, saved, surplus, wasted)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.say("Every key was paid once, and the ledger has booked what the bill says.")
	return nil
}

// calls says how often the model server was asked for the ticket.
func calls(s *stage, ticket string) string {
	n := len(s.models.BillByKey()[key(ticket)])
	if n == 1 {
		return "1 call on the bill"
	}
	return fmt.Sprintf("%d calls on the bill", n)
}
