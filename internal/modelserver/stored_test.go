package modelserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// A late answer is paid for and reaches nobody, but the provider has it.
func TestLateAnswer(t *testing.T) {
	ms := start(t, modelserver.Options{})
	ms.ScriptAny(modelserver.Fault{Hold: true, After: time.Millisecond})
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan got, 1)
	go func() { answered <- askResponses(ctx, ms.URL(), noRetries()) }()
	l := wait(t, ms, func(modelserver.Line) bool { return true })
	leave()
	if g := <-answered; !errors.Is(g.err, context.Canceled) {
		t.Errorf("client got %+v", g)
	}
	c := openAI(ms.URL(), noRetries())
	if _, err := c.Responses.Get(t.Context(), l.ObjectID, responses.ResponseGetParams{}); err == nil {
		t.Error("the answer is found before the model has finished")
	}
	if n := ms.Release("acme:summarize:1"); n != 1 {
		t.Errorf("released %d", n)
	}
	eventually(t, func() bool {
		r, err := c.Responses.Get(t.Context(), l.ObjectID, responses.ResponseGetParams{})
		return err == nil && r.OutputText() == wantText && r.Metadata["job_key"] == "acme:by-metadata:1"
	})
	if bill := ms.Bill(); len(bill) != 1 || bill[0].Delivered || bill[0].Fault != "hold+late" || ms.Requests() != 1 {
		t.Errorf("bill %+v", bill)
	}
}

// A background response exists before the money is spent on it, and is found by
// its id whatever happens to the client; also when the create answer is lost.
func TestBackgroundResponse(t *testing.T) {
	ms := start(t, modelserver.Options{})
	c := openAI(ms.URL(), noRetries())
	p := responseParams()
	p.Background = openai.Bool(true)
	ms.ScriptAny(modelserver.Fault{Hold: true}, modelserver.Fault{Kind: modelserver.Close})
	r, err := c.Responses.New(t.Context(), p)
	if err != nil || r.Status != "queued" || r.OutputText() != "" {
		t.Fatalf("create: %v, %v", r, err)
	}
	if r, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err != nil || r.Status != "in_progress" {
		t.Errorf("while it runs: %v, %v", r, err)
	}
	if n := ms.Release("acme:summarize:1"); n != 1 {
		t.Errorf("released %d", n)
	}
	eventually(t, func() bool {
		r, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		return err == nil && r.Status == "completed" && r.OutputText() == wantText && r.Usage.InputTokens > 0
	})
	if _, err := c.Responses.New(t.Context(), p); err == nil {
		t.Error("the second create answer was to be lost")
	}
	lost := ms.Bill()[1]
	if r, err = c.Responses.Get(t.Context(), lost.ObjectID, responses.ResponseGetParams{}); err != nil || r.Status != "completed" {
		t.Errorf("after a lost create answer: %v, %v", r, err)
	}
}

// A background response may end without an answer, or with a part of one, and is not found at first.
func TestBackgroundEnds(t *testing.T) {
	ms := start(t, modelserver.Options{})
	c := openAI(ms.URL(), noRetries())
	p := responseParams()
	p.Background = openai.Bool(true)
	for _, ends := range []responses.ResponseStatus{"failed", "incomplete", "cancelled"} {
		ms.ScriptAny(modelserver.Fault{Ends: string(ends), Lag: 1})
		r, err := c.Responses.New(t.Context(), p)
		if err != nil || r.Status != "queued" {
			t.Fatalf("create: %v, %v", r, err)
		}
		if got, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err == nil {
			t.Errorf("found at once: %+v", got)
		}
		r, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		if err != nil || r.Status != ends || (r.OutputText() != "") != (ends == "incomplete") || (r.Usage.TotalTokens > 0) == (ends == "cancelled") || (r.Error.Code != "") != (ends == "failed") {
			t.Errorf("%s: %+v, %v", ends, r, err)
		}
	}
	ms.ScriptAny(modelserver.Fault{Lag: -1})
	r, err := c.Responses.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if got, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err == nil {
			t.Errorf("found: %+v", got)
		}
	}
}

// Stored chat completions are listed by metadata, which is how a lost one is found.
func TestListStoredCompletions(t *testing.T) {
	ms := start(t, modelserver.Options{})
	c := openAI(ms.URL(), noRetries())
	ms.ScriptAny(modelserver.Fault{Kind: modelserver.Reset, Times: -1})
	for i := range 3 {
		p := chatParams()
		p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
		p.Store, p.Metadata = openai.Bool(i < 2), shared.Metadata{"job_key": fmt.Sprintf("k%d", i)}
		if _, err := c.Chat.Completions.New(t.Context(), p); err == nil {
			t.Error("the answer was to be lost")
		}
	}
	for key, want := range map[string]int{"k0": 1, "k1": 1, "k2": 0, "k3": 0} {
		page, err := c.Chat.Completions.List(t.Context(), openai.ChatCompletionListParams{Metadata: shared.Metadata{"job_key": key}})
		if err != nil || len(page.Data) != want {
			t.Fatalf("%s: %v, %v", key, page, err)
		}
		if want == 1 && page.Data[0].Choices[0].Message.Content != wantText {
			t.Errorf("%s: %+v", key, page.Data[0])
		}
	}
	if _, err := c.Chat.Completions.Get(t.Context(), ms.Bill()[0].ObjectID); err != nil {
		t.Error(err)
	}
	if _, err := c.Chat.Completions.Get(t.Context(), ms.Bill()[2].ObjectID); err == nil {
		t.Error("found what was not stored")
	}
}
