package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// driver writes frames as amqp091-go does, each by itself.
type driver struct {
	to    io.Writer
	block chan struct{} // nil: no write waits
	err   map[uint64]error
}

func (d *driver) frame(text string, tag uint64) error {
	if d.block != nil {
		<-d.block
	}
	if err := d.err[tag]; err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.to, "%s %d;", text, tag)
	return err
}

func (d *driver) Ack(tag uint64, multiple bool) error {
	return d.frame(fmt.Sprint("ack ", multiple), tag)
}

func (d *driver) Nack(tag uint64, multiple, requeue bool) error {
	return d.frame(fmt.Sprint("nack ", multiple, " ", requeue), tag)
}

func (d *driver) Reject(uint64, bool) error { panic("not used") }

// writers is a session whose write runs on a wire until the test's end.
func writers(t *testing.T) (*session, *driver, *wire) {
	w := &wire{}
	l := &link{cork: &corkConn{Conn: w}, socket: w}
	s := &session{link: l, dead: make(chan struct{}), writes: make(chan writing)}
	d := &driver{to: l.cork}
	go s.write(d)
	t.Cleanup(func() {
		select {
		case <-s.dead:
		default:
			close(s.dead)
		}
	})
	return s, d, w
}

// at is the delivery with a tag.
func (s *session) at(tag uint64) *held {
	return &held{session: s, tag: tag}
}

// A write that the driver does not finish ends with its caller's context, and so does one that waits behind it. Both are
// on their way all the same, one after the other.
func TestWriteIsBoundedByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, w := writers(t)
		d.block = make(chan struct{})
		told := make(chan error)
		for tag := range uint64(2) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				told <- s.at(tag).tell(ctx, tag == 1)
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := <-told; !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		close(d.block)
		synctest.Wait()
		if got := strings.Join(w.writes, ""); got != "ack false 0;nack false true 1;" {
			t.Errorf("written: %q", got)
		}
		d.err = map[uint64]error{2: errors.New("closed")}
		if err := s.at(2).tell(t.Context(), false); !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("on a channel that is closed: %v", err)
		}
		close(s.dead)
		synctest.Wait()
		if err := s.at(3).tell(t.Context(), false); !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("on a session that ended: %v", err)
		}
		if w.closed {
			t.Error("an error of the driver cut the connection, which others use")
		}
	})
}

// burst settles deliveries while the driver is busy with the one before them, so that write finds them together.
func burst(t *testing.T, s *session, d *driver, tags ...uint64) map[uint64]error {
	d.block = make(chan struct{})
	type told struct {
		tag uint64
		err error
	}
	results := make(chan told)
	for _, tag := range append([]uint64{0}, tags...) {
		go func() { results <- told{tag, s.at(tag).tell(t.Context(), tag%2 == 1)} }()
		synctest.Wait() // one after the other, the first in the driver
	}
	close(d.block)
	errs := map[uint64]error{}
	for range len(tags) + 1 {
		r := <-results
		errs[r.tag] = r.err
	}
	return errs
}

// What is settled at the same time leaves in one write, in order.
func TestBurstIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, w := writers(t)
		for tag, err := range burst(t, s, d, 1, 2, 3, 4) {
			if err != nil {
				t.Errorf("%d: %v", tag, err)
			}
		}
		want := []string{"ack false 0;", "nack false true 1;ack false 2;nack false true 3;ack false 4;"}
		if !slices.Equal(w.writes, want) {
			t.Errorf("written: %q, want %q", w.writes, want)
		}
	})
}

// A burst has an end although callers come and come.
func TestBurstIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, w := writers(t)
		var tags []uint64
		for tag := range uint64(maxBurst + 10) {
			tags = append(tags, tag+1)
		}
		burst(t, s, d, tags...)
		var each []int
		for _, text := range w.writes {
			each = append(each, strings.Count(text, ";"))
		}
		if !slices.Equal(each, []int{1, maxBurst, 10}) {
			t.Errorf("written together: %v", each)
		}
	})
}

// Callers that become ready together are one burst although write is idle: it lets them run before it writes.
func TestReadyCallersAreOneBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, w := writers(t)
		ready, told := make(chan struct{}), make(chan error)
		const n = 100
		for tag := range uint64(n) {
			go func() {
				<-ready
				told <- s.at(tag).tell(t.Context(), false)
			}()
		}
		synctest.Wait()
		close(ready)
		for range n {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
		if len(w.writes) > n/2 {
			t.Errorf("%d acks took %d writes", n, len(w.writes))
		}
	})
}

// Nobody is told that an ack was written whose bytes were kept and then not written. The connection is cut: what the
// driver took for written is not.
func TestBurstThatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, w := writers(t)
		d.err = map[uint64]error{2: errors.New("no such channel")}
		errs := burst(t, s, d, 1, 2)
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], d.err[2]) || w.closed {
			t.Errorf("one that the driver refuses: %v, closed %v", errs, w.closed)
		}
		s, d, w = writers(t)
		w.fail, w.first = os.ErrDeadlineExceeded, 1
		errs = burst(t, s, d, 1, 2, 3)
		for tag, err := range errs {
			if wrong := tag > 0; errors.Is(err, broker.ErrNotHeld) != wrong || errors.Is(err, os.ErrDeadlineExceeded) != wrong {
				t.Errorf("%d of a burst that was written by half: %v", tag, err)
			}
		}
		if !w.closed {
			t.Error("the connection was not cut")
		}
	})
}

// A broker that stops reading holds a burst until the write's deadline. Nobody waits longer for it than their context, nobody is
// told that it was written, and the connection is cut.
func TestBrokerThatStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := &link{socket: ours, cork: &corkConn{Conn: &deadlineConn{Conn: ours, limit: 20 * time.Second}}}
		s := &session{link: l, dead: make(chan struct{}), writes: make(chan writing)}
		go s.write(&driver{to: l.cork})
		defer close(s.dead)
		go theirs.Read(make([]byte, 10)) // a part of the first ack
		told := map[string]chan error{}
		start := func(name string, f func() error) {
			told[name] = make(chan error, 1)
			go func() { told[name] <- f() }()
			synctest.Wait()
		}
		ack := func(tag uint64, patience time.Duration) func() error {
			return func() error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				return s.at(tag).tell(ctx, false)
			}
		}
		start("the first", ack(1, time.Minute))
		start("behind it, with less patience", ack(2, 5*time.Second))
		start("behind it", ack(3, time.Minute))
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if err := <-told["behind it, with less patience"]; !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("less patience: %v", err)
		}
		for name, c := range told {
			select {
			case err := <-c:
				t.Errorf("%s ended early: %v", name, err)
			default:
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for name, want := range map[string]error{"the first": broker.ErrNotHeld, "behind it": broker.ErrNotHeld} {
			select {
			case err := <-told[name]:
				if !errors.Is(err, want) || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s waits still", name)
			}
		}
		if _, err := io.WriteString(l.cork, "heartbeat"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a heartbeat after it: %v", err)
		}
		if _, err := theirs.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection is not cut: %v", err)
		}
	})
}
