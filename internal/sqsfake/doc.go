// Package sqsfake is a stand-in for Amazon SQS that behaves as AWS does where
// emulators do not, fails as it is told, and records every call.
//
//	s := sqsfake.Start(t, sqsfake.Options{})
//	url := s.CreateQueue("jobs", nil)
//	s.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Reset, Done: true}) // the reply is lost
//	… run the adapter against s.URL() …
//	n := s.Count("DeleteMessageBatch")
//
// It speaks the JSON protocol of SQS, on a socket (Start) or without one: a client
// with HTTPClient reaches a server made by New within the process, also in a bubble of
// testing/synctest.
//
// Its clock stands still until Advance moves it, so a test can let a visibility
// timeout end without waiting; with Options.Running it also goes with the time. What
// a client waits for (a long poll, the delays of a fault) passes in real time; a
// long poll also ends when Advance moves the clock past its end.
//
// With Options.Upstream it is a proxy: calls are answered by another server, and the
// same faults happen to them.
//
// Differences from AWS that are meant: counts are exact at once, one receive sees
// all of a queue, and the order of a standard queue is that of the sends.
package sqsfake
