// Package jobtest tests handlers of yours against what happens to workers: deaths at every point where something is on record or not
// yet, zombies, lost leases, lost acks, late answers, duplicates. The consumer, the guarded transport, the ledger and the broker are the real ones, in
// memory and under simulated time; nothing leaves the process, and hours pass in milliseconds.
//
//	func TestInvoice(t *testing.T) {
//		in := ExtractInvoice{Tenant: "acme", Document: "9821", Text: "…"}
//		opt := jobtest.Options{Answer: `{"number":"R-17","total_cents":11900}`}
//		jobtest.CrashEverywhere(t, extractInvoice, in, nil, opt)
//		jobtest.SevenPaths(t, extractInvoice, in, opt)
//		jobtest.NoCollisions(t, func(tenant, document string) job.Key {
//			return ExtractInvoice{Tenant: tenant, Document: document}.JobKey()
//		})
//	}
//
// Every run is judged without a word of yours: what was paid for is paid once and used, there is one job and one result, nothing is acknowledged before its
// outcome is durable, an effect is made once, and the handler leaves to the framework what is the framework's. A failure names the point, what happened, the likely
// fix, and the line that makes it happen again. What else you expect of the end you check yourself, in the function that is given the [End].
//
// # The network
//
// Whatever a handler asks for over HTTP is answered by [Options.Provider], for any host, http and https alike: by the clients of an attempt, and by http.DefaultClient,
// whose transport is another one meanwhile. (A client that has a transport of its own is not seen, and real sockets hold up simulated time: do not use one.)
// What goes out by other ways, such as mail, is a fake of yours that tells the kit of it by [Did].
//
// # Time
//
// A run is in a bubble of testing/synctest. Channels and goroutines of a handler must be made by it, in the run. Tests that use this package run one
// after the other and must not call t.Parallel, since http.DefaultTransport is the process's.
//
// # Unknown
//
// A worker that dies between the send gate and the answer leaves a call of which nobody knows whether it was paid: the job is held. In a run
// of this package the call's policy and Reconcile come first; then a person looks into the provider's log, which here is what
// [Options.Provider] answered, and says what is there. So a job whose calls go over HTTP is done in the end, with one answer. A call that goes by Attempt.Sent has no
// log, and its job stays unknown, which is an end like any other: check End.State.
package jobtest
