#!/bin/sh
# Makes a queue, its dead-letter queue, and a FIFO pair of the same name. LocalStack runs
# this when it is ready; without the run bit it says so in its log and goes on without
# queues. It may run any number of times: creating finds the queue that is there as long
# as no attribute differs, and those that may be changed are set after.
set -eu

queue=${PAIDONCE_QUEUE:-jobs}

# create NAME [OPTION...]: prints the queue's URL.
create() {
	name=$1
	shift
	awslocal sqs create-queue --queue-name "$name" "$@" --query QueueUrl --output text
}

# set_attributes URL JSON
set_attributes() { awslocal sqs set-queue-attributes --queue-url "$1" --attributes "$2"; }

# pair QUEUE DEAD [OPTION...]: the options are for creating each.
pair() {
	queue_name=$1 dead_name=$2
	shift 2
	dead_url=$(create "$dead_name" "$@")
	dead_arn=$(awslocal sqs get-queue-attributes --queue-url "$dead_url" --attribute-names QueueArn --query Attributes.QueueArn --output text)
	# Dead letters are kept for the longest time that SQS has, 14 days.
	set_attributes "$dead_url" '{"MessageRetentionPeriod": "1209600"}'

	url=$(create "$queue_name" "$@")
	# maxReceiveCount is a guard against messages that crash their worker on receipt. It
	# is high because receives also count lost replies, give-backs and extensions
	# that came too late; how often a job may run is the ledger's business.
	set_attributes "$url" '{
		"VisibilityTimeout": "120",
		"ReceiveMessageWaitTimeSeconds": "20",
		"RedrivePolicy": "{\"deadLetterTargetArn\": \"'"$dead_arn"'\", \"maxReceiveCount\": \"1000\"}"
	}'
	echo "queues $queue_name and $dead_name are ready"
}

pair "$queue" "$queue-dead"
# A FIFO queue's dead letters need a FIFO queue, and both their names end in .fifo.
pair "$queue.fifo" "$queue-dead.fifo" --attributes '{"FifoQueue": "true"}'
