package modelserver

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The routes that create batches, as Request and Line name them. Every request of a batch is a line of the bill.
const (
	Batches        = "/v1/batches"
	MessageBatches = "/v1/messages/batches"
)

// batches are the batches and OpenAI's files.
type batches struct {
	mu    sync.Mutex
	all   []*batch // oldest first
	files map[string][]byte
}

// batch is one of either provider.
type batch struct {
	id, provider       string
	inputFile, outFile string
	endpoint           string
	metadata           map[string]string
	created            time.Time
	items              []item
	ended              bool
	lag                int   // lists that do not have it; negative: all
	lines              []int // of the bill
}

// item is one request of a batch.
type item struct {
	customID string
	*generation
}

// batchRequest is the union of the two bodies that create a batch.
type batchRequest struct {
	InputFile string         `json:"input_file_id"`
	Endpoint  string         `json:"endpoint"`
	Metadata  map[string]any `json:"metadata"`
	Requests  []struct {
		CustomID string          `json:"custom_id"`
		Params   json.RawMessage `json:"params"`
	} `json:"requests"`
}

func (s *Server) batchRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/files", s.upload)
	mux.HandleFunc("GET /v1/files/{id}/content", s.content)
	mux.HandleFunc("POST "+Batches, s.createBatch(Batches, OpenAI))
	mux.HandleFunc("POST "+MessageBatches, s.createBatch(MessageBatches, Anthropic))
	for route, provider := range map[string]string{Batches: OpenAI, MessageBatches: Anthropic} {
		mux.HandleFunc("GET "+route, s.listBatches(provider))
		mux.HandleFunc("GET "+route+"/{id}", s.getBatch(provider))
	}
	mux.HandleFunc("GET "+MessageBatches+"/{id}/results", s.results)
}

// upload keeps a file.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	f, header, err := r.FormFile("file")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return // the client left in mid-request
	}
	id := "file-" + rand.Text()
	s.batches.mu.Lock()
	s.batches.files[id] = text
	s.batches.mu.Unlock()
	writeJSON(w, http.StatusOK, object{"id": id, "object": "file", "bytes": len(text), "created_at": time.Now().Unix(),
		"filename": header.Filename, "purpose": r.FormValue("purpose"), "status": "processed"})
}

func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	s.batches.mu.Lock()
	text, ok := s.batches.files[r.PathValue("id")]
	s.batches.mu.Unlock()
	if !ok {
		notFound(w, OpenAI)
		return
	}
	s.delivered(func(b *batch) bool { return b.outFile == r.PathValue("id") })
	w.Write(text) // an error means that the client is gone
}

// createBatch serves what creates batches: all of a batch is billed then.
func (s *Server) createBatch(route, provider string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.active.Done()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left in mid-request
		}
		b, req, err := s.parseBatch(route, provider, r.Header, body)
		key := s.opt.KeyOf(req)
		f := s.script.next(key)
		requestID := "req_" + rand.Text()
		w.Header().Set(map[string]string{OpenAI: "x-request-id", Anthropic: "request-id"}[provider], requestID)
		if err != nil {
			no := refusals[BadRequest]
			no.message = err.Error()
			refuse(w, provider, requestID, Fault{}, no)
			return
		}
		x := exchange{server: s, w: w, r: r, req: req, key: key, requestID: requestID}
		if err := x.serveBatch(b, f); err != nil {
			s.fail(err)
			panic(http.ErrAbortHandler) // no answer that the bill does not know
		}
	}
}

// parseBatch reads the requests of a batch. What is returned beside it stands for all of them where one is asked for:
// in KeyOf, and in the bill's line where a request does not say it itself.
func (s *Server) parseBatch(route, provider string, h http.Header, body []byte) (*batch, Request, error) {
	all := Request{Provider: provider, Route: route, Header: h, Body: body, Metadata: map[string]string{}}
	var in batchRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, all, fmt.Errorf("the body is not JSON: %w", err)
	}
	for k, v := range in.Metadata {
		all.Metadata[k] = fmt.Sprint(v)
	}
	b := &batch{id: map[string]string{OpenAI: "batch_", Anthropic: "msgbatch_"}[provider] + rand.Text(), provider: provider,
		inputFile: in.InputFile, endpoint: in.Endpoint, metadata: all.Metadata, created: time.Now()}
	add := func(route, customID string, body []byte) error {
		req, err := parse(route, h, body)
		if err != nil {
			return err
		}
		all.Model, all.Prompt = cmp.Or(all.Model, req.Model), all.Prompt+req.Prompt+"\n"
		b.items = append(b.items, item{customID, newGeneration(req, "", s.opt.Generate(req), nil)})
		return nil
	}
	var errs []error
	for _, q := range in.Requests {
		errs = append(errs, add(Messages, q.CustomID, q.Params))
	}
	s.batches.mu.Lock()
	text := s.batches.files[in.InputFile]
	s.batches.mu.Unlock()
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var line struct {
			CustomID string          `json:"custom_id"`
			URL      string          `json:"url"`
			Body     json.RawMessage `json:"body"`
		}
		errs = append(errs, json.Unmarshal(lines.Bytes(), &line), add(line.URL, line.CustomID, line.Body))
	}
	if len(b.items) == 0 {
		errs = append(errs, errors.New("the batch has no requests"))
	}
	return b, all, errors.Join(errs...)
}

// serveBatch takes a batch through its fault. An error is one of the bill.
func (x exchange) serveBatch(b *batch, f Fault) error {
	s := x.server
	if !s.sleep(x.r.Context(), f.Before) {
		return nil
	}
	if f.billed() {
		released := s.holds.add(x.key, f.Hold)
		b.lag = f.Lag
		for _, i := range b.items {
			x := x
			x.req.Model, x.req.Prompt = i.Model, cmp.Or(i.Prompt, x.req.Prompt)
			l := x.line(i.generation, f)
			l.Tier, l.Batch, l.Price = "batch", b.id, price(i.Model, "batch", i.usage)
			n, err := s.bill.add(l)
			if err != nil {
				return err
			}
			b.lines = append(b.lines, n)
		}
		s.batches.add(b)
		s.work(released, s.opt.Latency+f.After, func() { s.batches.end(b) })
	}
	return x.end(f, delivery{w: x.w, r: x.r, fault: f, hold: func() bool { return true }, settled: func(bool) error { return nil },
		answer: halves(b.object())})
}

func (bs *batches) add(b *batch) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.all = append(bs.all, b)
}

// end makes the results of a batch available.
func (bs *batches) end(b *batch) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b.ended = true
	if b.provider == OpenAI {
		b.outFile = "file-" + rand.Text()
		bs.files[b.outFile] = b.output()
	}
}

// find returns batches of a provider that satisfy ok, newest first.
func (bs *batches) find(provider string, ok func(*batch) bool) []*batch {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	var found []*batch
	for i := range bs.all {
		if b := bs.all[len(bs.all)-1-i]; b.provider == provider && ok(b) {
			found = append(found, b)
		}
	}
	return found
}

// listed reports whether this list has it. The caller holds mu.
func (b *batch) listed() bool {
	if b.lag > 0 {
		b.lag--
		return false
	}
	return b.lag == 0
}

func (s *Server) getBatch(provider string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found := s.batches.find(provider, func(b *batch) bool { return b.id == r.PathValue("id") })
		if len(found) == 0 {
			notFound(w, provider)
			return
		}
		writeJSON(w, http.StatusOK, s.batches.object(found[0]))
	}
}

// listBatches is a page, newest first: at most limit of them, after the one that is named.
func (s *Server) listBatches(provider string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit := 20
		fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		after := cmp.Or(r.URL.Query().Get("after"), r.URL.Query().Get("after_id"))
		page, more := []object{}, false
		for _, b := range s.batches.find(provider, (*batch).listed) {
			switch {
			case after == b.id:
				after = ""
			case after != "":
			case len(page) == limit:
				more = true
			default:
				page = append(page, s.batches.object(b))
			}
		}
		list := object{"object": "list", "data": page, "has_more": more}
		if len(page) > 0 {
			list["first_id"], list["last_id"] = page[0]["id"], page[len(page)-1]["id"]
		}
		writeJSON(w, http.StatusOK, list)
	}
}

// results are Anthropic's.
func (s *Server) results(w http.ResponseWriter, r *http.Request) {
	found := s.batches.find(Anthropic, func(b *batch) bool { return b.id == r.PathValue("id") && b.ended })
	if len(found) == 0 {
		notFound(w, Anthropic)
		return
	}
	s.delivered(func(b *batch) bool { return b == found[0] })
	w.Header().Set("Content-Type", "application/x-jsonl")
	for _, i := range found[0].items {
		w.Write(append(encode(object{"custom_id": i.customID, "result": object{"type": "succeeded", "message": i.body()}}), '\n'))
	}
}

// delivered marks the lines of a batch whose results go out.
func (s *Server) delivered(ok func(*batch) bool) {
	for _, b := range append(s.batches.find(OpenAI, ok), s.batches.find(Anthropic, ok)...) {
		for _, n := range b.lines {
			if err := s.bill.delivery(n, true); err != nil {
				s.fail(err)
			}
		}
	}
}

func notFound(w http.ResponseWriter, provider string) {
	no := refusal{status: http.StatusNotFound, openai: "invalid_request_error", anthropic: "not_found_error", message: "There is nothing with this id."}
	refuse(w, provider, "req_"+rand.Text(), Fault{}, no)
}

func (bs *batches) object(b *batch) object {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return b.object()
}

// object is the batch as its provider shows it.
func (b *batch) object() object {
	done, at := 0, any(nil)
	if b.ended {
		done, at = len(b.items), b.created.UTC().Format(time.RFC3339)
	}
	if b.provider == Anthropic {
		status := map[bool]string{false: "in_progress", true: "ended"}[b.ended]
		return object{"id": b.id, "type": "message_batch", "processing_status": status, "created_at": b.created.UTC().Format(time.RFC3339Nano),
			"expires_at": b.created.Add(24 * time.Hour).UTC().Format(time.RFC3339), "ended_at": at, "archived_at": nil, "cancel_initiated_at": nil, "results_url": nil,
			"request_counts": object{"processing": len(b.items) - done, "succeeded": done, "errored": 0, "canceled": 0, "expired": 0}}
	}
	status := map[bool]string{false: "validating", true: "completed"}[b.ended]
	o := object{"id": b.id, "object": "batch", "endpoint": b.endpoint, "input_file_id": b.inputFile, "completion_window": "24h", "status": status,
		"created_at": b.created.Unix(), "metadata": b.metadata, "output_file_id": orNull(b.outFile), "error_file_id": nil,
		"request_counts": object{"total": len(b.items), "completed": done, "failed": 0}}
	u := usage{}
	for _, i := range b.items[:done] {
		u.in, u.cached, u.out, u.reasoning = u.in+i.usage.in, u.cached+i.usage.cached, u.out+i.usage.out, u.reasoning+i.usage.reasoning
	}
	o["usage"] = object{"input_tokens": u.in, "output_tokens": u.out, "total_tokens": u.in + u.out,
		"input_tokens_details": object{"cached_tokens": u.cached}, "output_tokens_details": object{"reasoning_tokens": u.reasoning}}
	return o
}

// output is the file of OpenAI's results.
func (b *batch) output() []byte {
	var out strings.Builder
	for _, i := range b.items {
		out.Write(encode(object{"id": "batch_req_" + rand.Text(), "custom_id": i.customID, "error": nil,
			"response": object{"status_code": 200, "request_id": "req_" + rand.Text(), "body": i.body()}}))
		out.WriteByte('\n')
	}
	return []byte(out.String())
}
