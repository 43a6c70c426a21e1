package sqs

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/paidonce/paidonce/broker"
)

// class is what an error of SQS means for what is done next.
type class int

const (
	temporary class = iota // again later: network, throttling, 5xx, anything unknown
	gone                   // the receipt handle holds nothing any more
	limit                  // more than the 12 hours
	missing                // the queue does not exist
	refused                // permissions, keys, credentials: somebody must change something
	contents               // this message cannot be carried
	tooLong                // it is larger than the queue takes
	invalid                // the request makes no sense to SQS: a fault of ours or of a setting
)

// failure is one error of SQS, of a call or of an entry in a batch.
type failure struct {
	class  class
	code   string // canonical: without prefix
	err    error
	silent bool // no answer of SQS: it may have been done all the same
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// codes maps every spelling that was seen to a class. A code that is not here is
// judged by whose fault it is.
var codes = map[string]class{
	"RequestThrottled": temporary, "ThrottlingException": temporary, "Throttling": temporary, "TooManyRequestsException": temporary,
	"KMS.ThrottlingException": temporary, "KmsThrottled": temporary, "OverLimit": temporary, "QueueDeletedRecently": temporary,
	"ServiceUnavailable": temporary, "InternalError": temporary, "InternalFailure": temporary, "RequestTimeout": temporary,
	"ReceiptHandleIsInvalid": gone, "MessageNotInflight": gone,
	"QueueDoesNotExist": missing, "NonExistentQueue": missing,
	"InvalidMessageContents": contents, "BatchRequestTooLong": tooLong, "MessageTooLong": tooLong,
}

// failed reads an error of a call. It is nil for nil.
func failed(err error) *failure {
	if err == nil {
		return nil
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return &failure{class: temporary, err: err, silent: !unsent(err) && !isAnswer(err)} // the network, a cut body, a context
	}
	f := &failure{class: invalid, code: canonical(api.ErrorCode()), err: err}
	switch {
	case isType[*types.QueueDoesNotExist](err):
		f.class = missing
	case isType[*types.ReceiptHandleIsInvalid](err), isType[*types.MessageNotInflight](err):
		f.class = gone
	case isType[*types.OverLimit](err), isType[*types.RequestThrottled](err), isType[*types.KmsThrottled](err):
		f.class = temporary
	default:
		f.class = classOf(f.code, api.ErrorMessage(), api.ErrorFault() == smithy.FaultClient)
		if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && r.HTTPStatusCode() >= 500 {
			f.class, f.silent = temporary, !isAnswer(err)
		}
	}
	return f
}

// unsent knows the errors of a request that did not leave.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// isAnswer knows a refusal, by SQS or by something in between that did not pass the request
// on. A gateway that got no answer itself knows nothing.
func isAnswer(err error) bool {
	r, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok {
		return false
	}
	status := r.HTTPStatusCode()
	return status >= http.StatusBadRequest && status != http.StatusBadGateway && status != http.StatusGatewayTimeout
}

// failedEntry reads the failure of one entry.
func failedEntry(e types.BatchResultErrorEntry) *failure {
	f := &failure{code: canonical(deref(e.Code))}
	f.class = classOf(f.code, deref(e.Message), e.SenderFault)
	f.err = fmt.Errorf("%s: %s", f.code, deref(e.Message))
	return f
}

// classOf judges a code. SQS has one code for many faults and tells them apart by
// text alone.
func classOf(code, text string, sender bool) class {
	has := func(s string) bool { return strings.Contains(text, s) }
	if c, ok := codes[code]; ok {
		return c
	}
	switch {
	case code == "InvalidParameterValue" && (has("beyond the limit") || has("Total VisibilityTimeout")):
		return limit
	case code == "InvalidParameterValue" && (has("does not exist") || has("expired") || has("not available for visibility")):
		return gone
	case code == "InvalidParameterValue" && has("must be shorter than"):
		return tooLong
	case strings.HasPrefix(code, "KMS.") || strings.HasPrefix(code, "Kms"), isRefusal(code):
		return refused
	case sender:
		return invalid
	default:
		return temporary
	}
}

// isRefusal knows the codes about credentials and permissions.
func isRefusal(code string) bool {
	for _, part := range []string{"AccessDenied", "ExpiredToken", "InvalidClientTokenId", "UnrecognizedClient", "SignatureDoesNotMatch",
		"InvalidSecurity", "MissingAuthenticationToken", "OptInRequired", "NotAuthorized", "Forbidden", "AuthFailure", "IncompleteSignature", "InvalidAccessKeyId"} {
		if strings.Contains(code, part) {
			return true
		}
	}
	return false
}

// canonical takes off what some answers put around a code.
func canonical(code string) string {
	code = code[strings.LastIndex(code, "#")+1:]
	code = strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	if code == "InvalidParameterValueException" {
		return "InvalidParameterValue"
	}
	return code
}

// kind is the error of package broker, or of this one, that a caller sees for f.
func (f *failure) kind() error {
	switch f.class {
	case gone:
		return broker.ErrNotHeld
	case limit:
		return broker.ErrLimit
	case missing:
		return broker.ErrUnroutable
	case refused, invalid:
		return ErrRefused
	case contents:
		return ErrContents
	case tooLong:
		return broker.ErrTooLarge
	default:
		return broker.ErrUnavailable
	}
}

// wrap is what a caller gets for f.
func (f *failure) wrap() error {
	if f == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", f.kind(), f.err)
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
