// Package outage holds the tests of whole workers in trouble: consumer, Postgres ledger
// and RabbitMQ adapter together, on real servers that are killed, cut off and
// robbed of their replies, and on messages that nobody should have sent. Each test
// compares the whole end state, the provider's bill first. Those that wait longest run side by
// side. The others run alone: they harm the whole broker, measure a process, or send so much at
// once that beside others a gate would be late.
package outage
