package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// submitBatch is how many messages are confirmed together.
const submitBatch = 100

// publishTimeout bounds one batch, reconnects included.
const publishTimeout = 30 * time.Second

// maxLine is the largest input, in bytes; the consumer takes no larger body.
const maxLine = 1 << 20

// Run sends a message for every good line. A line that no worker could run is
// refused with its number and nothing of it is sent; the others are, so that
// a corrected file can be submitted again as a whole: its good lines are
// duplicates then, and paid once.
func (s submitCommand) Run(c *call) error {
	cfg, err := c.load(c.reachable)
	if err != nil {
		return err
	}
	reg := registry(cfg)
	h, ok := reg.Lookup(s.Job)
	if !ok {
		return usagef("PO506 there is no job %q; there are %s", s.Job, strings.Join(reg.Names(), ", "))
	}
	in := c.Stdin
	if s.Input != "" && s.Input != "-" {
		f, err := os.Open(s.Input)
		if err != nil {
			return usagef("PO507 --input: %w", err)
		}
		defer f.Close()
		in = f
	}
	sent := &submission{call: c, handler: h, quiet: s.Wait}
	if s.Timeout != 0 && !s.Wait || s.Timeout < 0 {
		return usagef("PO502 --timeout %s: it is how long --wait waits", s.Timeout)
	}
	open := c.openBroker
	if c.throughLedger(cfg) {
		open = c.openIntake
	}
	q, err := open(cfg, logger(cfg, c.Stderr))
	if err != nil {
		return err
	}
	sent.queue = q
	err = sent.all(in)
	if s.Wait {
		err = errors.Join(err, sent.wait(cfg, s.Timeout))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, q.close(ctx))
}

// wanted is what one line asks for.
type wanted struct {
	key  ledger.Key
	hash ledger.Hash
}

// submission is one run of submit.
type submission struct {
	*call
	handler *job.Handler
	queue   *queue
	batch   []broker.Message
	asked   []job.Input // as batch
	quiet   bool        // keys are not printed
	stored  []wanted    // what is sent
	sent    int
	refused int
}

func (s *submission) all(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, size, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(s.flush(), fmt.Errorf("PO507 reading line %d: %w", n, err))
		}
		if size > len(line) {
			s.tooLong(n, size)
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			if ferr := s.add(n, line); ferr != nil {
				return ferr
			}
		}
		if err != nil {
			break
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	if s.refused > 0 {
		return fmt.Errorf("PO509 %d sent, %d refused; correct those lines and submit the whole file again: what was sent already is not paid twice", s.sent, s.refused)
	}
	return nil
}

// readLine reads a line and returns its size. It keeps little more than maxLine of it: an input without line breaks must not fill
// the memory.
func readLine(in *bufio.Reader) (line []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if size += len(part); len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, size, err
		}
	}
}

func (s *submission) tooLong(n, size int) {
	s.refuse(n, fmt.Errorf("it has %d bytes, at most %d are allowed", size, maxLine))
}

// add checks one line and puts it into the batch.
func (s *submission) add(n int, line []byte) error {
	if len(line) > maxLine {
		s.tooLong(n, len(line))
		return nil
	}
	in, err := s.handler.Decode(line)
	if err != nil {
		s.refuse(n, err)
		return nil
	}
	s.batch = append(s.batch, broker.Message{Body: slices.Clone(line), Attributes: map[string]string{"job": s.handler.Name()}})
	s.asked = append(s.asked, in)
	if len(s.batch) < submitBatch {
		return nil
	}
	return s.flush()
}

func (s *submission) refuse(n int, why error) {
	s.refused++
	fmt.Fprintf(s.Stderr, "worker: PO505 line %d: %v\n", n, why)
}

// flush publishes the batch, and prints its keys once the broker has stored it.
func (s *submission) flush() error {
	if len(s.batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, publishTimeout)
	defer cancel()
	if err := s.queue.Publish(ctx, s.batch...); err != nil {
		return fmt.Errorf("PO508 %d messages are sent; of the next %d any may be sent or not (submitting again is safe): %w", s.sent, len(s.batch), err)
	}
	for _, in := range s.asked {
		if s.quiet {
			s.stored = append(s.stored, wanted{in.Key.Ledger(), in.Hash})
		} else {
			fmt.Fprintln(s.Stdout, in.Key)
		}
	}
	s.sent += len(s.batch)
	s.batch, s.asked = nil, nil
	return nil
}

// Run prints the effective configuration.
func (k configCommand) Run(c *call) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	return show(c, k.asJSON, cfg.JSON(), func(w io.Writer) error { return printConfig(w, cfg) })
}

func printConfig(w io.Writer, cfg *config.Config) error {
	if err := cfg.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nconfiguration %s\n", cfg.Hash())
	return err
}
