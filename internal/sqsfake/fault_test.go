package sqsfake_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/internal/sqsfake"
)

func TestSlowDownIsSeen(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a")
	s.Script(sqsfake.Fault{Action: "ReceiveMessage", Before: 30 * time.Millisecond})
	start := time.Now()
	q.receive("a")
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("a slow call took %v", d)
	}
}

// TestConnectionFaults: what each does to the client, and whether the call was done.
func TestConnectionFaults(t *testing.T) {
	for _, c := range []struct {
		fault sqsfake.Fault
		is    error
		gone  bool
	}{
		{sqsfake.Fault{Kind: sqsfake.Close}, io.EOF, false},
		{sqsfake.Fault{Kind: sqsfake.Close, Done: true}, io.EOF, true},
		{sqsfake.Fault{Kind: sqsfake.Reset}, syscall.ECONNRESET, false},
		{sqsfake.Fault{Kind: sqsfake.Reset, Done: true}, syscall.ECONNRESET, true},
		{sqsfake.Fault{Kind: sqsfake.Cut}, io.ErrUnexpectedEOF, true},
		{sqsfake.Fault{Kind: sqsfake.Half}, nil, true},
		{sqsfake.Fault{Kind: sqsfake.Page, Status: 502}, nil, false},
		{sqsfake.Fault{Kind: sqsfake.Page, Status: 200, Done: true}, nil, true},
	} {
		for _, socket := range []bool{true, false} {
			s, q := fake(t, sqsfake.Options{}, nil)
			if !socket {
				q.c = client(s, func(o *sqs.Options) { o.HTTPClient = s.HTTPClient() })
			}
			q.send("a")
			c.fault.Action = "ReceiveMessage"
			s.Script(c.fault)
			messages, err := q.tryReceive()
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%+v, socket %v: got %v, %v; want an error, %v", c.fault, socket, messages, err, c.is)
			}
			visible := 1
			if c.gone {
				visible = 0
			}
			depth(t, s, "q", visible, 1-visible, 0)
			if got := s.Calls("ReceiveMessage"); len(got) != 1 || !strings.HasPrefix(got[0].Fault, string(c.fault.Kind)) {
				t.Errorf("the record is %+v, want one call with its fault", got)
			}
		}
	}
}

func TestHold(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a")
	s.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Hold})
	got := make(chan error)
	go func() {
		_, err := q.tryReceive()
		got <- err
	}()
	ok(t, s.WaitFor(t.Context(), func() bool { return s.Count("ReceiveMessage") == 1 }))
	depth(t, s, "q", 1, 0, 0)
	select {
	case err := <-got:
		t.Fatalf("a held call was answered: %v", err)
	default:
	}
	for released := false; !released; { // it is recorded a moment before it is held
		s.Release()
		select {
		case err := <-got:
			ok(t, err)
			released = true
		case <-time.After(time.Millisecond):
		}
	}
	depth(t, s, "q", 0, 1, 0)
}

// TestRefusals: what the SDK makes of the errors.
func TestRefusals(t *testing.T) {
	is := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	s, q := fake(t, sqsfake.Options{}, nil)
	for code, c := range map[string]struct {
		fault sqsfake.Error
		typed func(error) bool
	}{
		"AWS.SimpleQueueService.NonExistentQueue":   {sqsfake.QueueDoesNotExist, is(new(*types.QueueDoesNotExist))},
		"ReceiptHandleIsInvalid":                    {sqsfake.ReceiptHandleIsInvalid, is(new(*types.ReceiptHandleIsInvalid))},
		"AWS.SimpleQueueService.MessageNotInflight": {sqsfake.MessageNotInflight, is(new(*types.MessageNotInflight))},
		"InvalidParameterValue":                     {sqsfake.InvalidParameterValue, nil},
		"OverLimit":                                 {sqsfake.OverLimit, is(new(*types.OverLimit))},
		"RequestThrottled":                          {sqsfake.RequestThrottled, is(new(*types.RequestThrottled))},
		"ThrottlingException":                       {sqsfake.Throttling, nil},
		"KMS.ThrottlingException":                   {sqsfake.KMSThrottled, is(new(*types.KmsThrottled))},
		"KMS.AccessDeniedException":                 {sqsfake.KMSAccessDenied, is(new(*types.KmsAccessDenied))},
		"KMS.DisabledException":                     {sqsfake.KMSDisabled, is(new(*types.KmsDisabled))},
		"AccessDenied":                              {sqsfake.AccessDenied, nil},
		"ExpiredTokenException":                     {sqsfake.ExpiredToken, nil},
	} {
		s.Script(sqsfake.Fault{Action: "ChangeMessageVisibility", Kind: sqsfake.Refuse, Error: c.fault})
		err := q.hide(types.Message{ReceiptHandle: aws.String("x")}, 1)
		refused(t, err, code, "")
		if c.typed != nil && !c.typed(err) {
			t.Errorf("%v has not the type of its error", err)
		}
	}
}

// TestEntryFaults: entries fail one by one, with or without an effect.
func TestEntryFaults(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a", "b", "c")
	var entries []types.DeleteMessageBatchRequestEntry
	for i, m := range q.receive("a b c") {
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(string('0' + rune(i))), ReceiptHandle: m.ReceiptHandle})
	}
	for _, c := range []struct {
		done bool
		left int
	}{{false, 1}, {true, 0}} {
		s.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Done: c.done, Entries: []sqsfake.EntryFault{{Index: 1, Error: sqsfake.InternalError}}})
		out, err := q.c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: entries})
		ok(t, err)
		if len(out.Successful) != 2 || len(out.Failed) != 1 || *out.Failed[0].Id != "1" || out.Failed[0].SenderFault || *out.Failed[0].Code != "InternalFailure" {
			t.Errorf("the batch came to %+v, %+v; want entry 1 failed by the server's fault", out.Successful, out.Failed)
		}
		depth(t, s, "q", 0, c.left, 0)
	}
	calls := s.Calls("DeleteMessage*")
	if len(calls) != 2 || s.CountEntries("DeleteMessage*") != 6 || calls[0].Failed != 1 || !reflect.DeepEqual(calls[0].Each(), calls[0].Request.Entries) {
		t.Errorf("the record is %+v, want two calls about three messages", calls)
	}
}

func TestBadMD5AndTwice(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a", "b")
	s.Script(sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{1}}, sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{1}})
	if _, err := q.tryReceive(); err == nil {
		t.Error("the SDK took a body with another digest")
	}
	s.Advance(time.Minute)
	q.c = client(s, func(o *sqs.Options) { o.DisableMessageChecksumValidation = true })
	if m := q.receive("a b"); *m[0].MD5OfBody == *m[1].MD5OfBody || *m[1].MD5OfBody == "92eb5ffee6ae2fec3ad71c777531578f" {
		t.Errorf("digests are %s, %s; want the second wrong", *m[0].MD5OfBody, *m[1].MD5OfBody)
	}
	s.Advance(time.Minute)
	s.Script(sqsfake.Fault{Action: "ReceiveMessage", Twice: true})
	q.receive("a b")
	q.receive("a")
	q.receive("")
}

// TestFaultsAreForTheirCalls: by action, by predicate, and as often as they say.
func TestFaultsAreForTheirCalls(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	s.Script(sqsfake.Fault{Action: "ReceiveMessage", Times: 2, Kind: sqsfake.Page, Status: 500},
		sqsfake.Fault{Match: func(c sqsfake.Call) bool { return c.Queue == "other" }, Times: -1, Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied})
	q.send("a")
	for range 2 {
		if _, err := q.tryReceive(); err == nil {
			t.Error("received through a fault")
		}
	}
	q.receive("a")
	other := newQueue(t, q.c, s.CreateQueue("other", nil))
	for range 3 {
		_, err := other.tryReceive()
		refused(t, err, "AccessDenied", "")
	}
	s.ClearFaults()
	other.receive("")
}
