#!/bin/sh
# Makes the queue and its dead-letter queue. LocalStack runs this when it is ready,
# if the run bit is set (else it skips it and says nothing). It may run any number
# of times: creating without attributes finds the queue that is there, and
# the attributes are set after.
set -eu

queue=${PAIDONCE_QUEUE:-jobs}
dead=$queue-dead

# create NAME: prints the queue's URL.
create() { awslocal sqs create-queue --queue-name "$1" --query QueueUrl --output text; }

# set_attributes URL JSON
set_attributes() { awslocal sqs set-queue-attributes --queue-url "$1" --attributes "$2"; }

dead_url=$(create "$dead")
dead_arn=$(awslocal sqs get-queue-attributes --queue-url "$dead_url" --attribute-names QueueArn --query Attributes.QueueArn --output text)
# Dead letters are kept for the longest time that SQS has, 14 days.
set_attributes "$dead_url" '{"MessageRetentionPeriod": "1209600"}'

url=$(create "$queue")
# maxReceiveCount is a guard against messages that crash their worker on receipt. It
# is high because receives also count lost replies, give-backs and extensions
# that came too late; how often a job may run is the ledger's business.
set_attributes "$url" '{
	"VisibilityTimeout": "120",
	"ReceiveMessageWaitTimeSeconds": "20",
	"RedrivePolicy": "{\"deadLetterTargetArn\": \"'"$dead_arn"'\", \"maxReceiveCount\": \"1000\"}"
}'

echo "queues $queue and $dead are ready"
