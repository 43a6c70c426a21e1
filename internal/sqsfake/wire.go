package sqsfake

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Request is the decoded body of a call of any action. A nil pointer is a value that
// was not sent.
type Request struct {
	Entry // of the actions that are about one message

	QueueUrl        string  `json:",omitempty"`
	QueueName       string  `json:",omitempty"`
	QueueNamePrefix string  `json:",omitempty"`
	Entries         []Entry `json:",omitempty"`

	MaxNumberOfMessages         *int     `json:",omitempty"`
	WaitTimeSeconds             *int     `json:",omitempty"`
	ReceiveRequestAttemptId     string   `json:",omitempty"`
	MessageAttributeNames       []string `json:",omitempty"`
	MessageSystemAttributeNames []string `json:",omitempty"`
	AttributeNames              []string `json:",omitempty"` // of queues; of ReceiveMessage before MessageSystemAttributeNames

	Attributes     map[string]string `json:",omitempty"`
	SourceArn      string            `json:",omitempty"`
	DestinationArn string            `json:",omitempty"`
}

// Entry is one entry of a batch, or what a call about one message says of it.
// VisibilityTimeout is also that of ReceiveMessage.
type Entry struct {
	Id                      string               `json:",omitempty"`
	ReceiptHandle           string               `json:",omitempty"`
	VisibilityTimeout       *int                 `json:",omitempty"` // seconds
	MessageBody             *string              `json:",omitempty"`
	DelaySeconds            *int                 `json:",omitempty"`
	MessageAttributes       map[string]Attribute `json:",omitempty"`
	MessageSystemAttributes map[string]Attribute `json:",omitempty"`
	MessageGroupId          *string              `json:",omitempty"`
	MessageDeduplicationId  string               `json:",omitempty"`
}

// Attribute is a message attribute. BinaryValue is base64.
type Attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue *string `json:",omitempty"`
}

// value is what counts for the size and the digest.
func (a Attribute) value() []byte {
	if a.StringValue != nil {
		return []byte(*a.StringValue)
	}
	if a.BinaryValue == nil {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*a.BinaryValue)
	if err != nil {
		return []byte(*a.BinaryValue)
	}
	return b
}

// received is a message in the answer to ReceiveMessage.
type received struct {
	MessageId              string
	ReceiptHandle          string
	Body                   string
	MD5OfBody              string
	Attributes             map[string]string    `json:",omitempty"`
	MessageAttributes      map[string]Attribute `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
}

type receiveReply struct {
	Messages []received `json:",omitempty"`
}

// sent is the answer to SendMessage, or to an entry of its batch.
type sent struct {
	Id                           string `json:",omitempty"`
	MessageId                    string
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

// done is the answer to an entry of the other batches.
type done struct{ Id string }

// failed is the answer to an entry that was refused.
type failed struct {
	Id          string
	Code        string
	Message     string `json:",omitempty"`
	SenderFault bool
}

type batchReply struct {
	Successful []any    `json:",omitempty"`
	Failed     []failed `json:",omitempty"`
}

func md5Hex(b string) string {
	sum := md5.Sum([]byte(b))
	return hex.EncodeToString(sum[:])
}

// attributesMD5 is the digest of attributes as the API defines it; "" without any.
func attributesMD5(attributes map[string]Attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var b []byte
	add := func(p []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		add([]byte(name))
		add([]byte(a.DataType))
		kind := byte(1)
		if strings.HasPrefix(a.DataType, "Binary") {
			kind = 2
		}
		b = append(b, kind)
		add(a.value())
	}
	return md5Hex(string(b))
}
