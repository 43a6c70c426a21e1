package app

import (
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/consumer/prom"
)

// sqsMetrics is what the metrics show of the SQS adapter. The codes of failed acks are in its
// log: they are AWS's, and no fixed set.
func sqsMetrics(s sqs.State) prom.Broker {
	return prom.Broker{Connected: s.Connected, Held: s.Held, Waiting: s.Parked, Slack: s.Slack, Events: map[string]int64{
		"receives": s.Receives, "empty_receives": s.Empty, "messages": s.Messages, "redelivered": s.Redelivered, "corrupt": s.Corrupt,
		"lost": s.Lost, "acks_sent": s.AcksSent, "acks_failed": s.AcksFailed, "acks_lost": s.AcksLost, "acks_late": s.LateAcks,
		"extensions": s.Extensions, "extensions_failed": s.ExtensionsFailed, "released": s.Released, "dead_lettered": s.DeadLettered,
		"polls_cut": s.Stranded,
	}}
}

// rabbitMetrics is the same of RabbitMQ's.
func rabbitMetrics(s rabbitmq.State) prom.Broker {
	b := prom.Broker{Connected: s.Connected, Held: s.Held, Waiting: s.Prefetched, Events: map[string]int64{
		"lost": s.TakenBack, "overdue": s.Overdue, "copies": s.Copies, "doubled": s.Doubled, "returned": s.Returned, "unstored": s.Unstored,
	}}
	if s.Held+s.Prefetched > 0 {
		b.Slack = s.AckBudget - s.OldestHeld
	}
	for _, why := range []rabbitmq.Loss{rabbitmq.LostConnection, rabbitmq.LostChannel, rabbitmq.LostAckTimeout, rabbitmq.LostQueue, rabbitmq.NotConnected} {
		b.Events["session_"+string(why)] = s.Reconnects[why]
	}
	return b
}
