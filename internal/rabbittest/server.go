// Package rabbittest runs a private RabbitMQ for tests: one broker per test
// process, one virtual host per test, and the handles to break it.
//
//	srv := rabbittest.Start(t)
//	url := srv.VHost(t) // amqp://guest:guest@127.0.0.1:34567/vhost
//
// The broker listens on loopback only, keeps its files in a temporary folder,
// has a cookie of its own, and ends with the test process however that ends.
//
// With PAIDONCE_TEST_AMQP set to the URL of a running broker that one is used
// instead: every test then shares its virtual host (so queue names must be
// unique, see [Queue]), and a test that needs a handle is skipped and says so.
package rabbittest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// startLimit bounds a start. Idle it takes 3 to 6 s, on a loaded machine it took more than 60 s.
const startLimit = 3 * time.Minute

// Server is a running broker. Its methods may be called at the same time; those
// that break the whole broker (Kill9, Freeze, the alarms, AckTimeout) belong in
// tests that do not call t.Parallel.
type Server struct {
	url     string // of the broker, without a virtual host
	foreign bool   // from PAIDONCE_TEST_AMQP: it has no handles

	node *node
	ctl  *control
}

var shared struct {
	sync.Mutex
	srv *Server
	err error
}

// Start returns the broker of this test process and starts it if this is the
// first call. It ends with the process. A broker that cannot be started fails
// the test.
func Start(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if u := os.Getenv("PAIDONCE_TEST_AMQP"); u != "" {
		return &Server{url: strings.TrimSuffix(u, "/"), foreign: true}
	}
	if shared.srv == nil && shared.err == nil {
		shared.srv, shared.err = start(fastDir())
	}
	if shared.err != nil {
		t.Fatalf("no RabbitMQ for this test (apt-get install rabbitmq-server, or set PAIDONCE_TEST_AMQP): %v", shared.err)
	}
	return shared.srv
}

// StartOnDisk is for measurements: it starts another broker, whose files are where temporary
// files are, and which syncs them there. It ends with the process.
func StartOnDisk(t testing.TB) *Server {
	t.Helper()
	s, err := start("")
	if err != nil {
		t.Fatalf("no RabbitMQ to measure (apt-get install rabbitmq-server): %v", err)
	}
	return s
}

// PID is the process id of the broker's virtual machine.
func (s *Server) PID() int {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return s.node.cmd.Process.Pid
}

// start starts a broker with its files in a folder below dir; "": where temporary files are.
func start(dir string) (*Server, error) {
	n, err := newNode(dir)
	if err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		return nil, err
	}
	c, err := newControl(n)
	if err != nil {
		return nil, err
	}
	return &Server{url: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d", n.port), node: n, ctl: c}, nil
}

// Addr is where the broker listens, "host:port": the target of a fault proxy.
func (s *Server) Addr() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return ""
	}
	return u.Host
}

// VHost makes an empty virtual host for this test and returns its AMQP URL. It
// is deleted with the test.
func (s *Server) VHost(t testing.TB) string {
	t.Helper()
	if s.foreign {
		return s.url
	}
	name := "v" + strings.ToLower(rand.Text()[:10])
	s.Eval(t, `ok = rabbit_vhost:add(%s, <<"test">>), `+
		`ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, %s, <<".*">>, <<".*">>, <<".*">>, <<"test">>)`,
		bin(name), bin(name))
	t.Cleanup(func() { s.Eval(t, `catch rabbit_vhost:delete(%s, <<"test">>), ok`, bin(name)) })
	return s.url + "/" + name
}

// Queue returns a queue name that no other test uses.
func Queue(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return name[:min(len(name), 60)] + "-" + strings.ToLower(rand.Text()[:6])
}

// Dial opens a plain connection for a test's own looks at the broker. It is
// closed with the test.
func Dial(t testing.TB, amqpURL string) *amqp.Connection {
	t.Helper()
	c, err := amqp.DialConfig(amqpURL, amqp.Config{Dial: amqp.DefaultDial(10 * time.Second), Heartbeat: time.Minute})
	if err != nil {
		t.Fatalf("dial the test broker: %v", err)
	}
	t.Cleanup(func() { c.CloseDeadline(time.Now().Add(2 * time.Second)) })
	return c
}

// Channel opens a channel on a connection of its own, with confirms on.
func Channel(t testing.TB, amqpURL string) *amqp.Channel {
	t.Helper()
	ch, err := Dial(t, amqpURL).Channel()
	if err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatalf("turn confirms on: %v", err)
	}
	return ch
}

// handles skips a test that needs what a broker of somebody else does not give.
func (s *Server) handles(t testing.TB) {
	t.Helper()
	if s.foreign {
		t.Skip("needs a handle on the broker's process, and PAIDONCE_TEST_AMQP names a broker that tests must not break")
	}
}

// ready waits until an AMQP handshake succeeds; failed ends the wait early.
func ready(port int, failed <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		c, err := amqp.DialConfig(fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port),
			amqp.Config{Dial: amqp.DefaultDial(2 * time.Second)})
		if err == nil {
			return c.CloseDeadline(time.Now().Add(2 * time.Second))
		}
		select {
		case <-failed:
			return fmt.Errorf("broker exited while starting")
		case <-ctx.Done():
			return fmt.Errorf("broker did not answer in %v: %w", startLimit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
