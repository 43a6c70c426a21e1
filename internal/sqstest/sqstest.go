// Package sqstest gives tests an SQS that is not AWS's: one moto_server for the test
// process, and queues of its own for each test.
//
//	srv := sqstest.Start(t)
//	q := srv.Queue(t, sqstest.Spec{Dead: true, MaxReceives: 3})
//	cfg := srv.Config(); src, err := sqs.Open(ctx, sqs.Config{Queue: q.Name, AWS: &cfg})
//
// The server listens on loopback, on a free port, and ends with the test process,
// also when that is killed. With PAIDONCE_TEST_SQS set to the endpoint of a running
// emulator (LocalStack: http://127.0.0.1:4566) that one is used instead.
//
// moto walks a queue's whole message list on every call, so tests keep each queue
// under 200 messages. sitecustomize.py repairs its long polls. Where it does not behave as AWS does, and for faults, there is
// internal/sqsfake.
package sqstest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Region is where the queues are.
const Region = "us-east-1"

// Server is a running emulator. Its methods may be called at the same time.
type Server struct {
	endpoint string
	moto     *moto // nil: from PAIDONCE_TEST_SQS
}

var shared struct {
	sync.Mutex
	srv *Server // kept: moto ends when its standard input is collected
	err error
}

// Start returns the emulator of this test process and starts it if this is the
// first call. It ends with the process. One that cannot be started fails the test,
// and so does one that ends while the test runs.
func Start(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.srv == nil && shared.err == nil {
		shared.srv, shared.err = start()
	}
	if shared.err != nil {
		t.Fatalf("this test needs an SQS emulator: %v\n"+
			"Install moto (make test does it where python3 is; by hand: pip install 'moto[server]==%s', so that moto_server is on the PATH,\n"+
			"or name the program: PAIDONCE_MOTO_SERVER=/path/moto_server), or name a running emulator: PAIDONCE_TEST_SQS=http://127.0.0.1:4566", shared.err, motoVersion)
	}
	t.Cleanup(func() { shared.srv.alive(t) })
	return shared.srv
}

func start() (*Server, error) {
	if e := os.Getenv("PAIDONCE_TEST_SQS"); e != "" {
		s := &Server{endpoint: strings.TrimSuffix(e, "/")}
		return s, s.answers(nil)
	}
	program, err := findMoto()
	if err != nil {
		return nil, err
	}
	// The port is free now and may be taken a moment later; another one is free then.
	for range 3 {
		var s *Server
		if s, err = launch(program); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func launch(program string) (*Server, error) {
	dir, err := os.MkdirTemp("", "paidonce-moto-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for what moto loads: %w", err)
	}
	defer os.RemoveAll(dir)
	m, err := startMoto(program, dir)
	if err != nil {
		return nil, err
	}
	s := &Server{endpoint: fmt.Sprintf("http://127.0.0.1:%d", m.port), moto: m}
	if err := s.answers(m.ended); err != nil {
		m.stop()
		return nil, fmt.Errorf("%w; it wrote:\n%s", err, m.log.String())
	}
	return s, nil
}

// answers waits until a call succeeds. ended ends the wait early.
func (s *Server) answers(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		_, err := s.Client().ListQueues(try, &sqs.ListQueuesInput{})
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("moto_server ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s within %v: %w", s.endpoint, startLimit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// alive fails the test if the emulator ended meanwhile.
func (s *Server) alive(t testing.TB) {
	t.Helper()
	if s.moto == nil {
		return
	}
	select {
	case <-s.moto.ended:
		t.Errorf("moto_server ended during the test; it wrote:\n%s", s.moto.log.String())
	default:
	}
}

// Endpoint is http://host:port, without a slash.
func (s *Server) Endpoint() string { return s.endpoint }

// Config reaches the emulator: its endpoint, a region, and credentials that mean
// nothing. Calls are made once, without retries.
func (s *Server) Config() aws.Config {
	return aws.Config{
		Region:       Region,
		BaseEndpoint: aws.String(s.endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
	}
}

// Client is a client with Config, for a test's own looks at the queues.
func (s *Server) Client() *sqs.Client { return NewClient(s.Config()) }

// NewClient is a client that reads every reply to its end. The SDK's own loses one now and
// then on a busy machine; broker/sqs says why where it does the same.
func NewClient(cfg aws.Config) *sqs.Client {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	cfg.HTTPClient = readOnly{cfg.HTTPClient}
	return sqs.NewFromConfig(cfg)
}

type readOnly struct{ aws.HTTPClient }

// Do makes one try.
func (c readOnly) Do(r *http.Request) (*http.Response, error) {
	r = r.WithContext(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.HTTPClient.Do(r)
}

// Spec says what kind of queue a test wants. The zero Spec is a standard queue
// with the defaults of SQS and without a dead-letter queue.
type Spec struct {
	FIFO        bool
	Dead        bool              // with a dead-letter queue of the same type
	MaxReceives int               // maxReceiveCount; 0: 1000. Needs Dead
	Visibility  time.Duration     // whole seconds; 0: the default of SQS, 30 s
	Attributes  map[string]string // more of them, in the API's names; they win
}

// Queue is a queue of one test.
type Queue struct {
	Name, URL, ARN string
	Dead           *Queue // nil without Spec.Dead
}

// Queue makes an empty queue whose name no other test uses. It is deleted with the
// test.
func (s *Server) Queue(t testing.TB, spec Spec) Queue {
	t.Helper()
	attributes, suffix := map[string]string{}, ""
	if spec.FIFO {
		attributes["FifoQueue"], suffix = "true", ".fifo"
	}
	name := uniqueName(t)
	var dead *Queue
	if spec.Dead {
		d := s.create(t, name+"-dead"+suffix, attributes)
		dead = &d
	}
	if spec.Visibility > 0 {
		attributes["VisibilityTimeout"] = strconv.Itoa(int(spec.Visibility.Seconds()))
	}
	if dead != nil {
		receives := spec.MaxReceives
		if receives == 0 {
			receives = 1000
		}
		policy, err := json.Marshal(map[string]string{"deadLetterTargetArn": dead.ARN, "maxReceiveCount": strconv.Itoa(receives)})
		if err != nil {
			t.Fatal(err)
		}
		attributes["RedrivePolicy"] = string(policy)
	}
	maps.Copy(attributes, spec.Attributes)
	q := s.create(t, name+suffix, attributes)
	q.Dead = dead
	return q
}

func (s *Server) create(t testing.TB, name string, attributes map[string]string) Queue {
	t.Helper()
	out, err := s.Client().CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("create queue %s: %v", name, err)
	}
	t.Cleanup(func() { // the test's own context has ended by then; Reset may have been faster
		_, err := s.Client().DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
		if _, gone := errors.AsType[*types.QueueDoesNotExist](err); err != nil && !gone {
			t.Logf("delete queue %s: %v", name, err)
		}
	})
	a := s.attributes(t, *out.QueueUrl, types.QueueAttributeNameQueueArn)
	return Queue{Name: name, URL: *out.QueueUrl, ARN: a[string(types.QueueAttributeNameQueueArn)]}
}

func (s *Server) attributes(t testing.TB, url string, names ...types.QueueAttributeName) map[string]string {
	t.Helper()
	out, err := s.Client().GetQueueAttributes(context.WithoutCancel(t.Context()), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		t.Fatalf("attributes of %s: %v", url, err)
	}
	return out.Attributes
}

// Depth counts the messages of a queue.
type Depth struct {
	Visible  int // could be received now
	InFlight int // received and neither deleted nor back
	Delayed  int // sent with a delay that is not over
}

// Depth returns how many messages a queue has. An emulator's numbers are exact.
func (s *Server) Depth(t testing.TB, url string) Depth {
	t.Helper()
	a := s.attributes(t, url, types.QueueAttributeNameAll)
	n := func(name types.QueueAttributeName) int {
		v, err := strconv.Atoi(a[string(name)])
		if err != nil {
			t.Fatalf("attribute %s of %s is %q: %v", name, url, a[string(name)], err)
		}
		return v
	}
	return Depth{
		Visible:  n(types.QueueAttributeNameApproximateNumberOfMessages),
		InFlight: n(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		Delayed:  n(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
	}
}

// List returns the messages of a queue that could be received now, with all their
// attributes, and leaves them there. Emulators have no look without a receive, so
// it costs each message one: ApproximateReceiveCount goes up, and a queue with a low
// maxReceiveCount loses messages by it. Messages in flight are not seen.
func (s *Server) List(t testing.TB, url string) []types.Message {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var all []types.Message
	for {
		out, err := s.Client().ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, VisibilityTimeout: 60,
			MessageAttributeNames:       []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			t.Fatalf("list %s: %v", url, err)
		}
		if len(out.Messages) == 0 {
			break
		}
		all = append(all, out.Messages...)
	}
	for i := len(all) - 1; i >= 0; i-- { // last to first, for the order of a FIFO queue
		_, err := s.Client().ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: all[i].ReceiptHandle})
		if err != nil {
			t.Fatalf("give back a message of %s that was listed: %v", url, err)
		}
	}
	return all
}

// Reset empties the emulator: no queue is left, of any test of this process. With
// PAIDONCE_TEST_SQS it does nothing, since the emulator is somebody else's; queues
// go with their tests anyway.
func (s *Server) Reset(t testing.TB) {
	t.Helper()
	if s.moto == nil {
		return
	}
	resp, err := http.Post(s.endpoint+"/moto-api/reset", "", nil)
	if err != nil {
		t.Fatalf("reset moto: %v", err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reset moto: %s %s %v", resp.Status, body, err)
	}
}

// uniqueName is a queue name that no other test uses, short enough for the suffixes.
func uniqueName(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return name[:min(len(name), 60)] + "-" + strings.ToLower(rand.Text()[:6])
}
