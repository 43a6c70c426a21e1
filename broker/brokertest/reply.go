package brokertest

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/broker"
)

// replyCases: answers to whoever asked.
var replyCases = []testCase{
	{"reply", "an answer does not reach the queue that its message named, or not with what its reader knows it by", reply},
	{"reply to nobody", "an answer without a reader keeps its message for ever, or goes round in the worker's own queue", replyToNobody},
}

// Next takes the next message of a queue by its adapter's own source.
func Next(s broker.Source) func(context.Context) (broker.Message, error) {
	return func(ctx context.Context) (broker.Message, error) {
		ds, err := s.Receive(ctx, 1)
		if err != nil {
			return broker.Message{}, fmt.Errorf("receive an answer: %w", err)
		}
		return ds[0].Message, s.Ack(ctx, ds[0])
	}
}

func (e *env) replier() broker.Replier {
	r, ok := e.Source.(broker.Replier)
	if !ok {
		r, ok = e.Publisher.(broker.Replier) // the memory queue's sources are consumers alone
	}
	if !ok {
		e.Fatalf("%T sends no answers", e.Source)
	}
	return r
}

func reply(e *env) {
	name, next := e.Answers()
	ask := broker.Message{Body: []byte("ask"), Attributes: map[string]string{broker.ReplyTo: name, broker.CorrelationID: "c-1", "n": "1"}}
	e.publish(ask)
	d := e.one(e.Source)
	e.same(d.Message, ask)
	for _, body := range []string{"first", "again"} {
		want := broker.Message{Body: []byte(body), Attributes: map[string]string{broker.CorrelationID: d.Attributes[broker.CorrelationID], "state": "done"}}
		if err := e.replier().Reply(e.patient(), d.Attributes[broker.ReplyTo], want); err != nil {
			e.Fatalf("reply to %s: %v", name, err)
		}
		got, err := next(e.patient())
		if err != nil {
			e.Fatal(err)
		}
		e.same(got, want)
	}
	e.ack(e.Source, d)
	e.drained()
}

func replyToNobody(e *env) {
	e.publishText("ask")
	d := e.one(e.Source)
	for _, to := range append(e.NoAnswers, "", "nobody-reads-this") {
		err := e.replier().Reply(e.patient(), to, broker.Message{Body: []byte("answer")})
		e.is("reply to "+to, err, broker.ErrUnroutable)
	}
	e.ack(e.Source, d)
	e.drained()
}
