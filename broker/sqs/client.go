package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

const (
	// pollGrace is how much longer than its wait a receive may take.
	pollGrace = 10 * time.Second
	// tryLimit bounds one try of every other request, callLimit all its tries together.
	tryLimit  = 5 * time.Second
	callLimit = 20 * time.Second
	// sendLimit is tryLimit for a request with messages in it: it may be a MiB, and one
	// that is repeated although it arrived doubles what it carries.
	sendLimit = 15 * time.Second
	// settleTries is how often the SDK sends such a request.
	settleTries = 3
	// connections is how many idle ones each client keeps: polls, and batches at once.
	connections = 32
)

// api are the calls that the adapter makes.
type api interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	CreateQueue(context.Context, *sqs.CreateQueueInput, ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error)
	SetQueueAttributes(context.Context, *sqs.SetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.SetQueueAttributesOutput, error)
}

var _ api = (*sqs.Client)(nil)

// clients are several, because the SDK's retries of one client share a budget: receives
// from a server that is down would use it up, and deletes would not be repeated any more.
type clients struct {
	receive api
	settle  api
	send    api
	idle    []*http.Transport
}

// connect makes the clients. It sends nothing.
func (s *settings) connect(ctx context.Context) (*clients, error) {
	cfg, err := s.sdk(ctx)
	if err != nil {
		return nil, err
	}
	c := &clients{}
	options := func(timeout time.Duration, retryer aws.Retryer) func(*sqs.Options) {
		return func(o *sqs.Options) {
			o.HTTPClient = c.http(cfg.HTTPClient, timeout)
			o.Retryer = retryer
			// One bad checksum would fail the receive of ten; the adapter checks each message.
			o.DisableMessageChecksumValidation = true
			if s.Endpoint != "" {
				o.BaseEndpoint = &s.Endpoint
			}
		}
	}
	// A receive that is repeated in silence strands what the lost reply carried.
	c.receive = sqs.NewFromConfig(cfg, options(s.Wait+pollGrace, aws.NopRetryer{}))
	again := func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = settleTries })
	}
	c.settle = sqs.NewFromConfig(cfg, options(tryLimit, again()))
	c.send = sqs.NewFromConfig(cfg, options(sendLimit, again()))
	return c, nil
}

// sdk is the SDK's own configuration.
func (s *settings) sdk(ctx context.Context) (aws.Config, error) {
	var cfg aws.Config
	if s.AWS != nil {
		cfg = s.AWS.Copy()
	} else {
		var err error
		if cfg, err = awsconfig.LoadDefaultConfig(ctx); err != nil {
			return cfg, fmt.Errorf("%w: AWS configuration: %w", ErrConfig, err)
		}
	}
	if s.Region != "" {
		cfg.Region = s.Region
	}
	if cfg.Region == "" {
		return cfg, fmt.Errorf("%w: no region: set broker.region, AWS_REGION or the region of the AWS profile", ErrConfig)
	}
	// Options would let these go before the adapter's own.
	cfg.Retryer, cfg.RetryMaxAttempts, cfg.RetryMode = nil, 0, ""
	return cfg, nil
}

// http is a client with a timeout; the SDK's own has none. given may carry a proxy or
// certificates of the user's.
func (c *clients) http(given aws.HTTPClient, timeout time.Duration) aws.HTTPClient {
	b, ok := given.(*awshttp.BuildableClient)
	if given == nil {
		b, ok = awshttp.NewBuildableClient(), true
	}
	if !ok {
		return bounded{given, timeout}
	}
	t := b.GetTransport() // a copy
	t.MaxIdleConnsPerHost = connections
	c.idle = append(c.idle, t)
	return &http.Client{Transport: readOnlyBodies{t}, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// readOnlyBodies sends requests whose bodies can be read and closed only.
type readOnlyBodies struct{ *http.Transport }

// RoundTrip makes one try.
func (t readOnlyBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.Transport.RoundTrip(readOnly(r.WithContext(r.Context())))
}

// readOnly takes WriteTo from the body of r, which is the caller's own copy. The SDK closes
// the body when the reply begins, and its WriteTo says io.EOF from then on. net/http may still
// have to look whether there is more to send; it takes that for a broken write and closes the
// connection under the reply. Of a receive the messages would be lost until they are visible
// again.
func readOnly(r *http.Request) *http.Request {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return r
}

// bounded gives a client of the user's the timeout that ours has.
type bounded struct {
	aws.HTTPClient
	timeout time.Duration
}

// Do makes one try. The timeout covers the body too.
func (c bounded) Do(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), c.timeout, errSilent)
	resp, err := c.HTTPClient.Do(readOnly(r.WithContext(ctx)))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &boundedBody{resp.Body, cancel}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the timeout.
func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// close lets go of connections that nothing uses.
func (c *clients) close() {
	for _, t := range c.idle {
		t.CloseIdleConnections()
	}
}

// call bounds one request, all its tries together.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callLimit, errSilent)
}

// errSilent is why a request was given up.
var errSilent = errors.New("no answer in time")
