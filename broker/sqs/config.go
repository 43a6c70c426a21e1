package sqs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Config says which queue, and how to use it. Queue must be set; the zero value of
// everything else is a good choice.
type Config struct {
	// Queue is the name or the URL of the queue. One that ends in .fifo is a FIFO queue.
	Queue string

	// DeadLetter is the name or the URL of the queue for messages set aside for people.
	// It must be of the same type as Queue. Empty: where the queue's redrive policy
	// sends messages.
	DeadLetter string

	// Endpoint is the URL of another server than AWS: an emulator, a VPC endpoint.
	// Empty: the region's.
	Endpoint string

	// Region is the AWS region. Empty: that of a queue URL, then the SDK's default chain.
	Region string

	// Declare makes the adapter create what is missing: the queue, its dead-letter
	// queue (DeadLetter, or "<queue>-dead", on FIFO "<base>-dead.fifo", with a retention of
	// 14 days), and where the queue has no redrive policy one with a maxReceiveCount of
	// 1000. It never deletes or changes what is there. False: all belongs to somebody
	// else, and the adapter waits until the queue is there.
	Declare bool

	// Visibility is how long a delivery is hidden before it must be extended. Whole
	// seconds, up to 12 h. 0: the queue's own setting, and nothing is sent that could
	// override it.
	Visibility time.Duration

	// Wait is how long a receive waits at the server for a message. Whole seconds, 1 s
	// to 20 s. 0: the queue's own setting, or 20 s where it has none. It is also how long
	// Close may take.
	Wait time.Duration

	// AWS has credentials, HTTP client and the like. Nil: the SDK's default chain
	// (environment, shared files, the role of the machine). Timeouts and retries are
	// the adapter's own in any case; an HTTP client that is not the SDK's own is used as
	// it is.
	AWS *aws.Config

	// Logger takes what happens to the queue. Nil: slog.Default().
	Logger *slog.Logger
}

// The errors of this package beside those of package broker.
var (
	// ErrConfig: the configuration cannot work, whatever AWS does.
	ErrConfig = errors.New("PO151 SQS configuration is not usable")
	// ErrRefused: AWS refuses this caller or this request, and will again.
	ErrRefused = errors.New("PO152 AWS refuses the request")
	// ErrContents: SQS does not carry a message with this body or these attributes.
	ErrContents = errors.New("PO153 SQS cannot carry this message")
	// ErrQueue: the queue's own settings make it unusable.
	ErrQueue = errors.New("PO154 queue cannot be used as it is set up")
)

const (
	fifoSuffix = ".fifo"
	deadSuffix = "-dead"
	// maxHold is how long SQS hides a message at most, from the receive on.
	maxHold = 12 * time.Hour
	// holdMargin is what the adapter stays below that.
	holdMargin = time.Minute
)

// settings is a Config with every default filled in, checked.
type settings struct {
	Config
	fifo    bool
	ownWait bool // the queue's setting counts, and Wait is what holds without one
}

// resolve fills in defaults and reports all faults at once.
func (c Config) resolve() (*settings, error) {
	s := &settings{Config: c, fifo: strings.HasSuffix(c.Queue, fifoSuffix)}
	if s.Wait == 0 {
		s.Wait, s.ownWait = 20*time.Second, true
	}
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	if s.Region == "" {
		s.Region = regionOf(s.Queue)
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.Queue != "", "queue is empty")
	check(s.DeadLetter == "" || s.DeadLetter != s.Queue, "dead_letter %q is the queue itself", s.DeadLetter)
	check(s.DeadLetter == "" || strings.HasSuffix(s.DeadLetter, fifoSuffix) == s.fifo,
		"dead_letter %q: queue %q and its dead-letter queue must both be FIFO or both be standard", s.DeadLetter, s.Queue)
	check(s.Visibility >= 0 && s.Visibility <= maxHold && s.Visibility%time.Second == 0, "visibility %v: want whole seconds, up to 12h, or 0", s.Visibility)
	check(s.Wait >= time.Second && s.Wait <= 20*time.Second && s.Wait%time.Second == 0, "wait %v: want whole seconds, from 1s to 20s", s.Wait)
	if s.Endpoint != "" {
		u, err := url.Parse(s.Endpoint)
		check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "endpoint %q is not a URL such as http://127.0.0.1:4566", s.Endpoint)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return s, nil
}

// waitAt is how long a receive waits at q.
func (s *settings) waitAt(q *queue) time.Duration {
	if s.ownWait && q.wait > 0 {
		return q.wait
	}
	return s.Wait
}

// isURL tells a queue's URL from its name.
func isURL(queue string) bool { return strings.Contains(queue, "://") }

// nameOf is the name of a queue that is given by name or URL.
func nameOf(queue string) string { return queue[strings.LastIndex(queue, "/")+1:] }

// regionOf is the region in the URL of a queue at AWS, or "".
func regionOf(queue string) string {
	u, err := url.Parse(queue)
	if err != nil {
		return ""
	}
	parts := strings.Split(u.Hostname(), ".")
	if len(parts) >= 4 && parts[0] == "sqs" && parts[2] == "amazonaws" {
		return parts[1]
	}
	return ""
}

// deadName is the default name of the dead-letter queue.
func deadName(queue string) string {
	if base, fifo := strings.CutSuffix(queue, fifoSuffix); fifo {
		return base + deadSuffix + fifoSuffix
	}
	return queue + deadSuffix
}

// timeout is d as SQS takes it: whole seconds, rounded up.
func timeout(d time.Duration) int32 {
	return int32((max(d, 0) + time.Second - 1) / time.Second)
}
