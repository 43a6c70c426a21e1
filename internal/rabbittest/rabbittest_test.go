package rabbittest_test

import (
	"errors"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/internal/rabbittest"
)

// fill declares a quorum queue and stores one confirmed message in it.
func fill(t *testing.T, url, queue string) {
	t.Helper()
	ch := rabbittest.Channel(t, url)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	dc, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: 2})
	if err != nil || !dc.Wait() {
		t.Fatalf("publish: %v", err)
	}
}

// consume takes the message of fill and keeps it.
func consume(t *testing.T, url, queue string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	c := rabbittest.Dial(t, url)
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-ds
	return c, ch
}

func depth(t *testing.T, srv *rabbittest.Server, url, queue string, ready, unacked int) {
	t.Helper()
	for range 200 {
		if r, u := srv.Depth(t, url, queue); r == ready && u == unacked {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r, u := srv.Depth(t, url, queue)
	t.Fatalf("depth %d ready, %d unacked, want %d and %d", r, u, ready, unacked)
}

func code(err *amqp.Error) int {
	if err == nil {
		return 0
	}
	return err.Code
}

func TestVirtualHostsAreApart(t *testing.T) {
	srv := rabbittest.Start(t)
	a, b := srv.VHost(t), srv.VHost(t)
	fill(t, a, "q")
	depth(t, srv, a, "q", 1, 0)
	if _, err := rabbittest.Channel(t, b).QueueDeclarePassive("q", true, false, false, false, nil); err == nil {
		t.Error("a queue of one virtual host is in another")
	}
	if srv.Version(t) == "" || rabbittest.Start(t) != srv {
		t.Error("no version, or a second broker in one process")
	}
}

func TestFaultsOfConnectionsAndChannels(t *testing.T) {
	srv := rabbittest.Start(t)
	url := srv.VHost(t)
	fill(t, url, "q")
	conn, ch := consume(t, url, "q")
	connClosed, chClosed := conn.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))
	depth(t, srv, url, "q", 0, 1)
	if n := srv.Consumers(t, url, "q"); n != 1 {
		t.Errorf("%d consumers, want 1", n)
	}
	if n := srv.CloseChannels(t, url, "q"); n != 1 {
		t.Errorf("closed %d channels, want 1", n)
	}
	if err := <-chClosed; code(err) != amqp.PreconditionFailed {
		t.Errorf("channel closed with %v, want 406", err)
	}
	depth(t, srv, url, "q", 1, 0)
	if conn.IsClosed() {
		t.Error("the connection went with its channel")
	}
	srv.CloseConnections(t, url)
	if err := <-connClosed; code(err) != amqp.ConnectionForced {
		t.Errorf("connection closed with %v, want 320", err)
	}
	conn, _ = consume(t, url, "q")
	connClosed = conn.NotifyClose(make(chan *amqp.Error, 1))
	srv.CrashChannels(t, url, "q")
	if err := <-connClosed; code(err) != amqp.InternalError {
		t.Errorf("connection closed with %v, want 541", err)
	}
	depth(t, srv, url, "q", 1, 0)
}

func TestAckTimeout(t *testing.T) {
	srv := rabbittest.Start(t)
	url := srv.VHost(t)
	fill(t, url, "q")
	srv.AckTimeout(t, time.Second)
	_, ch := consume(t, url, "q")
	if err := <-ch.NotifyClose(make(chan *amqp.Error, 1)); code(err) != amqp.PreconditionFailed {
		t.Errorf("channel closed with %v, want 406", err)
	}
}

func TestMemoryAlarm(t *testing.T) {
	srv := rabbittest.Start(t)
	url := srv.VHost(t)
	fill(t, url, "q")
	conn := rabbittest.Dial(t, url)
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 2))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	srv.MemoryAlarm(t, true)
	if err := ch.Publish("", "q", true, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	if b := <-blocked; !b.Active {
		t.Error("not blocked in an alarm")
	}
	srv.MemoryAlarm(t, false)
	if b := <-blocked; b.Active {
		t.Error("still blocked after the alarm")
	}
	depth(t, srv, url, "q", 2, 0)
}

func TestFreeze(t *testing.T) {
	srv := rabbittest.Start(t)
	srv.Freeze(t)
	if c, err := amqp.DialConfig("amqp://guest:guest@"+srv.Addr()+"/", amqp.Config{Dial: amqp.DefaultDial(300 * time.Millisecond)}); err == nil {
		c.Close()
		t.Error("a frozen broker answered")
	} else if ne, ok := errors.AsType[net.Error](err); ok && !ne.Timeout() {
		t.Errorf("dial a frozen broker: %v, want a timeout", err)
	}
	srv.Thaw(t)
	rabbittest.Dial(t, srv.VHost(t))
}

func TestKill9KeepsWhatWasConfirmed(t *testing.T) {
	srv := rabbittest.Start(t)
	url := srv.VHost(t)
	fill(t, url, "q")
	time.Sleep(rabbittest.SettleTime)
	srv.Kill9(t)
	srv.Restart(t)
	depth(t, srv, url, "q", 1, 0)
	consume(t, url, "q")
}
