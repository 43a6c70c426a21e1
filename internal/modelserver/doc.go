// Package modelserver is a stand-in for model providers, on a real socket: OpenAI
// chat completions and responses, Anthropic messages, streamed and not, and the batches of both. What OpenAI
// keeps can be asked for: responses by their id, in background mode while they run too, and chat completions and
// batches by their metadata. It answers
// as the official SDKs expect it, fails as it is told, and keeps a bill.
//
// The bill is the point. A paid request is one that the provider began to answer,
// whether or not anybody got the answer, and a client cannot see that; this server
// writes one [Line] per generation, and a test's oracle is the number of lines per
// business key:
//
//	ms, err := modelserver.Start(modelserver.Options{})
//	defer ms.Close()
//	ms.Script("acme:invoice.extract:9821", modelserver.Fault{Kind: modelserver.Reset})
//	… run the job against ms.URL() …
//	lines := ms.BillByKey()["acme:invoice.extract:9821"] // must be one
//
// Requests that offer tools (chat and messages, not streamed) are asked to call them: by [ToolsOnce], or as
// Options.CallTools says. Each turn of a conversation is a line of the bill.
//
// Base URLs: the OpenAI SDK takes URL()+"/v1/", the Anthropic SDK URL().
//
// Faults are real ones: connections are closed or reset under the client, bodies
// are cut, answers are held. That needs HTTP/1.1, which Start speaks.
//
// Other processes use the same server over its URL: GET /bill and GET /requests
// (JSON of [Server.Bill] and [Server.RequestsByKey]), POST /script (JSON of [Script])
// and POST /release?key=….
package modelserver
