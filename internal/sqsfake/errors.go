package sqsfake

import "fmt"

// Error is a refusal as SQS words it.
type Error struct {
	Status  int    // HTTP; 0: 400
	Type    string // shape of the body's __type
	Code    string // of the x-amzn-query-error header, which SDKs show; "": no such header
	Message string
	// Server says that SQS is to blame: SenderFault is false.
	Server bool
}

func (e Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// with returns the error with another message.
func (e Error) with(format string, args ...any) *Error {
	e.Message = fmt.Sprintf(format, args...)
	return &e
}

// Errors to script. Those that the fake also answers by itself are among them.
var (
	// OverLimit is for too many messages in flight.
	OverLimit = Error{403, "com.amazonaws.sqs#OverLimit", "OverLimit", "Too many messages in flight.", false}
	// RequestThrottled, Throttling and KMSThrottled are the other ways to say slower.
	RequestThrottled = Error{403, "com.amazonaws.sqs#RequestThrottled", "RequestThrottled", "The request was throttled.", false}
	Throttling       = Error{400, "com.amazonaws.sqs#ThrottlingException", "ThrottlingException", "Rate exceeded", false}
	KMSThrottled     = Error{400, "com.amazonaws.sqs#KmsThrottled", "KMS.ThrottlingException", "KMS throttled the request.", false}

	KMSAccessDenied = Error{400, "com.amazonaws.sqs#KmsAccessDenied", "KMS.AccessDeniedException", "The ciphertext refers to a key that the caller may not use.", false}
	KMSDisabled     = Error{400, "com.amazonaws.sqs#KmsDisabled", "KMS.DisabledException", "The key is disabled.", false}
	AccessDenied    = Error{403, "com.amazon.coral.service#AccessDeniedException", "AccessDenied", "User is not authorized to perform this action on the queue.", false}
	ExpiredToken    = Error{403, "com.amazon.coral.service#ExpiredTokenException", "ExpiredTokenException", "The security token included in the request is expired", false}
	InternalError   = Error{500, "com.amazonaws.sqs#InternalFailure", "InternalFailure", "We encountered an internal error. Please try again.", true}
	Unavailable     = Error{503, "com.amazonaws.sqs#ServiceUnavailable", "ServiceUnavailable", "The service is not available.", true}

	QueueDoesNotExist      = Error{400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.", false}
	ReceiptHandleIsInvalid = Error{404, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", "The input receipt handle is invalid.", false}
	MessageNotInflight     = Error{400, "com.amazonaws.sqs#MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "The message is not in flight.", false}
	InvalidParameterValue  = Error{400, "com.amazonaws.sqs#InvalidParameterValueException", "InvalidParameterValue", "The value of a parameter is not valid.", false}
)

var (
	missingParameter       = Error{400, "com.amazonaws.sqs#MissingParameterException", "MissingParameter", "", false}
	invalidAttributeName   = Error{400, "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName", "", false}
	invalidAttributeValue  = Error{400, "com.amazonaws.sqs#InvalidAttributeValue", "InvalidAttributeValue", "", false}
	invalidMessageContents = Error{400, "com.amazonaws.sqs#InvalidMessageContents", "InvalidMessageContents", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF", false}
	queueNameExists        = Error{400, "com.amazonaws.sqs#QueueNameExists", "QueueAlreadyExists", "A queue already exists with the same name and a different value for an attribute.", false}
	purgeInProgress        = Error{403, "com.amazonaws.sqs#PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", "Only one PurgeQueue operation on a queue is allowed every 60 seconds.", false}
	resourceNotFound       = Error{404, "com.amazonaws.sqs#ResourceNotFoundException", "ResourceNotFoundException", "The resource that you specified for the SourceArn parameter doesn't exist.", false}
	unknownOperation       = Error{404, "com.amazon.coral.service#UnknownOperationException", "", "The requested operation is not supported.", false}
	serialization          = Error{400, "com.amazon.coral.service#SerializationException", "", "", false}

	emptyBatch       = Error{400, "com.amazonaws.sqs#EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", "There should be at least one entry in the request.", false}
	tooManyEntries   = Error{400, "com.amazonaws.sqs#TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "", false}
	idsNotDistinct   = Error{400, "com.amazonaws.sqs#BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "", false}
	invalidEntryID   = Error{400, "com.amazonaws.sqs#InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.", false}
	batchTooLong     = Error{400, "com.amazonaws.sqs#BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", "", false}
	handleExpiredMsg = "Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
	handleGoneMsg    = "Value %s for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."
)
