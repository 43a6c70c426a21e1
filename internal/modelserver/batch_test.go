package modelserver_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicopt "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/internal/modelserver"
)

const batchLine = `{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-5-mini","messages":[{"role":"user","content":"Read %s"}]}}` + "\n"

// create uploads two requests and makes a batch of them.
func create(t *testing.T, c openai.Client, key string) (*openai.Batch, error) {
	t.Helper()
	in := fmt.Sprintf(batchLine+batchLine, "a", "one", "b", "two")
	f, err := c.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeBatch, File: openai.File(strings.NewReader(in), "in.jsonl", "application/jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	return c.Batches.New(t.Context(), openai.BatchNewParams{InputFileID: f.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
		CompletionWindow: openai.BatchNewParamsCompletionWindow24h, Metadata: shared.Metadata{"job_key": key}})
}

// A batch is billed when it is created, at half the price, and its results are there when it is over. It is in the list,
// newest first and page by page, also when its create answer is lost.
func TestBatch(t *testing.T) {
	ms := start(t, modelserver.Options{})
	c := openAI(ms.URL(), noRetries())
	ms.Script("k1", modelserver.Fault{Hold: true})
	ms.Script("k2", modelserver.Fault{Kind: modelserver.Reset})
	ms.Script("k3", modelserver.Fault{Kind: modelserver.RateLimit})
	b, err := create(t, c, "k1")
	if err != nil || b.Status != "validating" || b.OutputFileID != "" {
		t.Fatalf("create: %+v, %v", b, err)
	}
	for _, key := range []string{"k2", "k3"} {
		if _, err := create(t, c, key); err == nil {
			t.Errorf("%s: the answer was to be lost", key)
		}
	}
	bill := ms.Bill()
	if len(bill) != 4 || ms.Requests() != 3 {
		t.Fatalf("%d requests, bill %+v", ms.Requests(), bill)
	}
	if l := bill[1]; l.Key != "k1" || l.Batch != b.ID || l.Tier != "batch" || l.Price*2 != l.In*250-l.Cached*225+l.Out*2000 || l.Delivered {
		t.Errorf("line %+v", l)
	}
	var listed []string
	list := c.Batches.ListAutoPaging(t.Context(), openai.BatchListParams{Limit: openai.Int(1)})
	for list.Next() {
		listed = append(listed, list.Current().Metadata["job_key"])
	}
	if err := list.Err(); err != nil || fmt.Sprint(listed) != "[k2 k1]" {
		t.Errorf("listed %v, %v", listed, err)
	}
	ms.Release("k1")
	eventually(t, func() bool {
		b, err = c.Batches.Get(t.Context(), b.ID)
		return err == nil && b.Status == "completed" && b.RequestCounts.Completed == 2 && b.Usage.InputTokens == bill[0].In+bill[1].In
	})
	out, err := c.Files.Content(t.Context(), b.OutputFileID)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || len(lines) != 2 || !strings.Contains(lines[1], `"custom_id":"b"`) || !strings.Contains(lines[1], "Read two") {
		t.Errorf("results %s, %v", text, err)
	}
	if l := ms.Bill(); !l[0].Delivered || !l[1].Delivered || l[2].Delivered {
		t.Errorf("bill %+v", l)
	}
}

// Anthropic's does not say what is in it before it is over.
func TestMessageBatch(t *testing.T) {
	ms := start(t, modelserver.Options{})
	c := anthropic.NewClient(anthropicopt.WithBaseURL(ms.URL()), anthropicopt.WithAPIKey("k"), anthropicopt.WithMaxRetries(0))
	ms.ScriptAny(modelserver.Fault{Hold: true, Lag: 1})
	var p anthropic.MessageBatchNewParams
	for _, id := range []string{"a", "b"} {
		p.Requests = append(p.Requests, anthropic.MessageBatchNewParamsRequest{CustomID: id, Params: anthropic.MessageBatchNewParamsRequestParams{
			Model: "claude-haiku-4-5", MaxTokens: 9, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Read " + id))}}})
	}
	b, err := c.Messages.Batches.New(t.Context(), p)
	if err != nil || b.ProcessingStatus != "in_progress" || b.RequestCounts.Processing != 2 {
		t.Fatalf("create: %+v, %v", b, err)
	}
	for _, want := range []int{0, 1} {
		page, err := c.Messages.Batches.List(t.Context(), anthropic.MessageBatchListParams{})
		if err != nil || len(page.Data) != want {
			t.Errorf("listed %+v, %v", page, err)
		}
	}
	results := func() (ids string) {
		st := c.Messages.Batches.ResultsStreaming(t.Context(), b.ID, anthropic.MessageBatchResultsParams{})
		defer st.Close()
		for st.Next() {
			ids += st.Current().CustomID + " " + st.Current().Result.Message.Content[0].Text + "; "
		}
		return ids
	}
	if got := results(); got != "" {
		t.Errorf("results %q while it runs", got)
	}
	ms.Release(ms.Bill()[0].Key)
	eventually(t, func() bool {
		b, err = c.Messages.Batches.Get(t.Context(), b.ID, anthropic.MessageBatchGetParams{})
		return err == nil && b.ProcessingStatus == "ended" && b.RequestCounts.Succeeded == 2
	})
	if got := results(); got != "a Summary of 2 words: Read a; b Summary of 2 words: Read b; " {
		t.Errorf("results %q", got)
	}
	if l := ms.Bill(); len(l) != 2 || !l[0].Delivered || l[1].Batch != b.ID {
		t.Errorf("bill %+v", l)
	}
}
