// Package e2e proves what the README promises on the real binary: processes that are
// killed, frozen and told to leave, a Postgres ledger, a queue of RabbitMQ or SQS, and a
// model server that keeps the bill. It holds tests only.
//
// A proof makes a World, starts processes in it, harms them, waits, and asks the
// oracle (World.Check), which compares the bill, the ledger and the queues. Workers that
// die at a chosen point are the test's own binary (deadly), with the real adapters inside.
package e2e
