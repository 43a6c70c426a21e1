package rabbitmq

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config says which broker and queue, and how to use them. URL and Queue must be
// set; the zero value of everything else is a good choice.
type Config struct {
	// URL is amqp://user:password@host:port/vhost, or amqps:// for TLS. Reserved
	// characters in user, password and vhost are percent-encoded. The query
	// parameters of RabbitMQ's URI specification (cacertfile, certfile, keyfile,
	// server_name_indication, auth_mechanism, heartbeat) are understood. The
	// password appears in no log line and no error.
	URL string

	// Queue is the queue that Receive reads and Publish sends to. The queues that
	// hold given-back messages are named after it: "<Queue>.retry.<milliseconds>".
	Queue string

	// DeadLetter is the queue for messages set aside for people. Empty:
	// "<Queue>.dead".
	DeadLetter string

	// Declare makes the adapter create the queues it needs, at every connection.
	// It never deletes or changes one. False: they belong to somebody else,
	// and the consumer waits until all of them are there.
	Declare bool

	// Prefetch is how many deliveries may be unsettled at once: as many as the
	// handlers that run at once. More only makes messages wait here while the ack
	// timeout runs. 0: 64. At most 65535.
	Prefetch int

	// AckTimeout is the broker's consumer_timeout, which it does not tell its
	// clients. A delivery's Deadline is four fifths of it. 0: 30 minutes,
	// RabbitMQ's default. Set it lower than the broker's, never higher: past
	// the broker's own, every delivery of the process is taken back at once.
	AckTimeout time.Duration

	// Heartbeat is the interval in which the two sides show that they live; a
	// silent broker is noticed after one and a half of it. Whole seconds. 0: 10 s. A
	// heartbeat in the URL goes first.
	Heartbeat time.Duration

	// Retry are the delays that Nack can give, each a queue of its own. A wanted
	// delay is rounded up to the next one, and down to the last one. Whole
	// milliseconds, any order. Nil: 1 s, 5 s, 15 s, 30 s, 1 min, 5 min, 15 min, 1 h.
	Retry []time.Duration

	// TLS is used for amqps:// and cloned for every connection. Nil: the system's
	// roots, or what the URL's parameters say. At least TLS 1.2 in any case.
	TLS *tls.Config

	// Credentials is asked for user and password before every connection, so that
	// they can change. Nil: those of the URL.
	Credentials func(ctx context.Context) (user, password string, err error)

	// Name is shown as the connection's name in RabbitMQ's own pages. Empty: the
	// program's and the host's name.
	Name string

	// Logger takes what happens to the connections. Nil: slog.Default().
	Logger *slog.Logger

	// MaxBody is the largest body to publish, in bytes. 0: what the broker's
	// version takes by default, 16 MiB from RabbitMQ 4.0 and 128 MiB before.
	MaxBody int
}

// The errors of this package beside those of package broker.
var (
	// ErrConfig: the configuration cannot work, whatever the broker does.
	ErrConfig = errors.New("PO141 RabbitMQ configuration is not usable")
	// ErrMismatch: a queue exists with other properties than Declare would give it.
	ErrMismatch = errors.New("PO142 queue exists with other properties")
)

// settings is a Config with every default filled in, checked.
type settings struct {
	Config
	uri     amqp.URI
	beat    time.Duration   // the heartbeat in force
	rungs   []time.Duration // ascending
	secrets *redactor
}

var defaultRetry = []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// resolve fills in defaults and reports all faults at once.
func (c Config) resolve() (*settings, error) {
	s := &settings{Config: c, secrets: &redactor{}}
	if s.DeadLetter == "" {
		s.DeadLetter = s.Queue + ".dead"
	}
	orDefault(&s.Prefetch, 64)
	orDefault(&s.AckTimeout, 30*time.Minute)
	orDefault(&s.Heartbeat, 10*time.Second)
	if s.Retry == nil {
		s.Retry = defaultRetry
	}
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	if s.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		s.Name = "paidonce " + host
	}
	s.rungs = slices.Compact(slices.Sorted(slices.Values(s.Retry)))
	err := errors.Join(s.resolveURL(), s.checkQueues(), s.checkNumbers())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return s, nil
}

// resolveURL parses the URL. A parser's error is not passed on: it quotes the URL,
// or the part of the password that it stumbled over.
func (s *settings) resolveURL() error {
	uri, err := amqp.ParseURI(s.URL)
	if err != nil {
		return errors.New("url is not an AMQP URL (amqp://user:password@host:port/vhost, reserved characters percent-encoded)")
	}
	s.uri = uri
	if uri.Password != defaultPassword {
		s.secrets.add(uri.Password)
	}
	if uri.Scheme != "amqps" && s.TLS != nil {
		return errors.New("tls is set, but the url says amqp://, which is not encrypted: write amqps://")
	}
	return s.resolveHeartbeat()
}

// resolveHeartbeat lets the URL's go first, as the driver does.
func (s *settings) resolveHeartbeat() error {
	s.beat = s.Heartbeat
	u, err := url.Parse(s.URL)
	if err != nil || !u.Query().Has("heartbeat") {
		return nil // the driver's parser took the URL, so it is fine
	}
	n, err := strconv.Atoi(u.Query().Get("heartbeat"))
	if err != nil || n < 1 {
		return errors.New("url turns the heartbeat off: a broker that vanishes would not be noticed")
	}
	s.beat = time.Duration(n) * time.Second
	return nil
}

func (s *settings) checkQueues() error {
	var errs []error
	longest := s.Queue
	for _, q := range s.topology() {
		if len(q.name) > len(longest) {
			longest = q.name
		}
	}
	switch {
	case s.Queue == "":
		errs = append(errs, errors.New("queue is empty"))
	case strings.HasPrefix(s.Queue, "amq."):
		errs = append(errs, fmt.Errorf("queue %q: RabbitMQ keeps names that begin with amq. for itself", s.Queue))
	case s.DeadLetter == s.Queue:
		errs = append(errs, fmt.Errorf("dead_letter %q is the queue itself", s.DeadLetter))
	case len(longest) > 255:
		errs = append(errs, fmt.Errorf("queue name %q has %d bytes, at most 255 are allowed", longest, len(longest)))
	}
	for _, r := range s.rungs {
		if r < time.Millisecond || r%time.Millisecond != 0 || r.Milliseconds() > math.MaxUint32 {
			errs = append(errs, fmt.Errorf("retry delay %v: want whole milliseconds, from 1 ms to 49 days", r))
		}
	}
	if len(s.rungs) == 0 {
		errs = append(errs, errors.New("retry is empty: nothing could be given back with a delay"))
	}
	return errors.Join(errs...)
}

func (s *settings) checkNumbers() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	// AMQP has 16 bits for it; more would silently become something else.
	check(s.Prefetch >= 1 && s.Prefetch <= math.MaxUint16, "prefetch %d: want 1 to 65535", s.Prefetch)
	check(s.AckTimeout >= time.Second, "ack_timeout %v: want at least 1s", s.AckTimeout)
	check(s.Heartbeat >= time.Second && s.Heartbeat <= 10*time.Minute && s.Heartbeat%time.Second == 0,
		"heartbeat %v: want whole seconds, from 1s to 10m", s.Heartbeat)
	check(s.MaxBody >= 0, "max_body %d: want 0 or more bytes", s.MaxBody)
	return errors.Join(errs...)
}

// maxBody is the limit for a broker of this version.
func (s *settings) maxBody(version string) int {
	switch {
	case s.MaxBody > 0:
		return s.MaxBody
	case major(version) >= 4:
		return 16 << 20
	default:
		return 128 << 20
	}
}

// rung is the delay that Nack gives when delay is wanted.
func (s *settings) rung(delay time.Duration) time.Duration {
	for _, r := range s.rungs {
		if r >= delay {
			return r
		}
	}
	return s.rungs[len(s.rungs)-1]
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// newID names a message that its sender gave no name.
func newID() string { return strings.ToLower(rand.Text()) }
