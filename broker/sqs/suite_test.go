package sqs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// bench is one queue of the emulator, with its dead-letter queue.
type bench struct {
	*testing.T
	srv   *sqstest.Server
	queue sqstest.Queue
	conf  sqs.Config
}

func newBench(t *testing.T, spec sqstest.Spec) *bench {
	t.Helper()
	b := &bench{T: t, srv: sqstest.Start(t)}
	spec.Dead = true
	if spec.Visibility == 0 {
		spec.Visibility = time.Minute
	}
	b.queue = b.srv.Queue(t, spec)
	b.conf = b.config(b.queue.Name)
	return b
}

func (b *bench) config(queue string) sqs.Config {
	cfg := b.srv.Config()
	return sqs.Config{Queue: queue, AWS: &cfg, Wait: time.Second, Logger: logger(b.T)}
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open opens a Broker that is closed with the test.
func open(t *testing.T, conf sqs.Config) *sqs.Broker {
	t.Helper()
	s, err := sqs.Open(t.Context(), conf)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx) // what a test expects of it is in the test
	})
	return s
}

// soon is a context for one step that must succeed.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestSuite: what holds for every broker, on both types of queue, at the emulator and at
// the fake, which knows better where the emulator is wrong.
func TestSuite(t *testing.T) {
	for name, harness := range map[string]func(*testing.T, bool) *brokertest.Harness{"emulator": harness, "fake": fakeHarness} {
		for kind, fifo := range map[string]bool{"standard": false, "fifo": true} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				brokertest.Run(t, func(t *testing.T) *brokertest.Harness { return harness(t, fifo) })
			})
		}
	}
}

// fakeHarness is harness with a server of its own, the fake on a socket.
func fakeHarness(t *testing.T, fifo bool) *brokertest.Harness {
	t.Parallel()
	srv := sqsfake.Start(t, sqsfake.Options{Running: true})
	cfg := aws.Config{Region: sqsfake.Region, BaseEndpoint: aws.String(srv.URL()), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	queue, dead, attributes := "jobs", "jobs-dead", map[string]string{"VisibilityTimeout": "60"}
	if fifo {
		queue, dead, attributes["FifoQueue"] = "jobs.fifo", "jobs-dead.fifo", "true"
	}
	url := srv.CreateQueue(queue, attributes)
	conf := sqs.Config{Queue: queue, Declare: true, AWS: &cfg, Wait: time.Second, Logger: logger(t)}
	missing := conf
	missing.Queue, missing.Declare = "missing", false
	h := harnessOf(t, conf, missing, fifo)
	h.Depth = func(context.Context) (ready, held int, err error) {
		d := srv.Depth(queue)
		return d.Visible, d.InFlight + d.Delayed, nil
	}
	return h.with(sqstest.NewClient(cfg), url, func() int { return srv.Depth(dead).Visible })
}

func harness(t *testing.T, fifo bool) *brokertest.Harness {
	t.Parallel() // the cases share nothing but the emulator
	b := newBench(t, sqstest.Spec{FIFO: fifo})
	h := harnessOf(t, b.conf, b.config("missing"), fifo)
	h.Depth = func(context.Context) (ready, held int, err error) {
		d := b.srv.Depth(b, b.queue.URL)
		return d.Visible, d.InFlight + d.Delayed, nil
	}
	h.Backlog = 100 // the emulator walks the whole queue on every call
	return h.with(b.srv.Client(), b.queue.URL, func() int { return b.srv.Depth(b, b.queue.Dead.URL).Visible })
}

// suiteHarness is a harness whose server is still to be said.
type suiteHarness struct {
	*brokertest.Harness
	t      *testing.T
	source *sqs.Broker
	direct *sqs.Broker
}

func harnessOf(t *testing.T, conf, missing sqs.Config, fifo bool) suiteHarness {
	source, direct := open(t, conf), open(t, conf)
	return suiteHarness{t: t, source: source, direct: direct, Harness: &brokertest.Harness{
		Source:       source,
		Second:       func() broker.Source { return open(t, conf) },
		Publisher:    direct,
		MissingQueue: func() broker.Publisher { return open(t, missing) },
		NoAnswers:    []string{conf.Queue, "https://sqs.eu-west-1.example.com/000000000000/answers"},
		Answers: func() (string, func(context.Context) (broker.Message, error)) {
			own := conf
			own.Queue, own.DeadLetter, own.Declare = "answers-"+rand.Text(), "", true
			if fifo {
				own.Queue += ".fifo"
			}
			return own.Queue, brokertest.Next(open(t, own))
		},
		Close:          func(s broker.Source) error { return s.(*sqs.Broker).Close(soon(t)) },
		CountsReceives: true,
		LateAck:        !fifo,
		MinBody:        1,
		MaxBody:        1 << 20,
		TextOnly:       true,
		MaxHold:        12 * time.Hour,
		DelayStep:      func(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) },
	}}
}

// with adds what needs a look at the server: the queue at url by c, and how many dead
// letters there are.
func (h suiteHarness) with(c *awssqs.Client, url string, dead func() int) *brokertest.Harness {
	h.DeadLetters = func(ctx context.Context) (ds []brokertest.DeadLetter, err error) {
		if dead() == 0 {
			return nil, nil // looking for none takes a second
		}
		err = h.direct.Review(ctx, 1000, func(d broker.DeadLetter) broker.Fate {
			ds = append(ds, brokertest.DeadLetter{Message: d.Message, Reason: d.Reason})
			return broker.Keep
		})
		return ds, err
	}
	h.Lapse = func(d broker.Delivery) {
		handle := sqs.Expire(h.source, d)
		_, err := c.ChangeMessageVisibility(soon(h.t), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &handle})
		if err != nil {
			h.t.Fatalf("end the hold of %q: %v", d.Body, err)
		}
		if _, err := h.source.Extend(soon(h.t), d, time.Minute); !errors.Is(err, broker.ErrNotHeld) {
			h.t.Fatalf("extend after the deadline: %v", err)
		}
	}
	return h.Harness
}

// BenchmarkIdle is what 16 pollers that wait cost: the time of the process's CPU is
// what to look at.
func BenchmarkIdle(b *testing.B) {
	srv := sqsfake.Start(b, sqsfake.Options{Running: true})
	cfg := aws.Config{Region: sqsfake.Region, BaseEndpoint: aws.String(srv.URL()), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	srv.CreateQueue("jobs", nil)
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	var all []*sqs.Broker
	for range 16 {
		s, err := sqs.Open(ctx, sqs.Config{Queue: "jobs", AWS: &cfg, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
		done.Go(func() { s.Receive(ctx, 10) })
	}
	time.Sleep(time.Second)
	before := cpu(b)
	at := time.Now()
	for b.Loop() {
		time.Sleep(10 * time.Second)
	}
	b.ReportMetric(100*float64(cpu(b)-before)/float64(time.Since(at)), "%core")
	cancel()
	done.Wait()
	srv.Close() // so that the polls end
	for _, s := range all {
		short, stop := context.WithTimeout(context.Background(), time.Second)
		s.Close(short)
		stop()
	}
}

// cpu is what the process has used so far.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
