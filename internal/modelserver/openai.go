package modelserver

// OpenAI's shapes, as openai-go v3 reads them.

func openaiError(r refusal) object {
	return object{"error": object{"message": r.message, "type": r.openai, "param": nil, "code": orNull(r.code)}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (g *generation) chatUsage() object {
	return object{
		"prompt_tokens": g.usage.in, "completion_tokens": g.usage.out, "total_tokens": g.usage.in + g.usage.out,
		"prompt_tokens_details":     object{"cached_tokens": g.usage.cached, "audio_tokens": 0},
		"completion_tokens_details": object{"reasoning_tokens": g.usage.reasoning, "audio_tokens": 0},
	}
}

func (g *generation) chatCompletion() object {
	message, finish := g.chatMessage()
	return object{
		"id": g.id, "object": "chat.completion", "created": g.created.Unix(), "model": g.Model,
		"choices": []object{{"index": 0, "finish_reason": finish, "logprobs": nil, "message": message}},
		"usage":   g.chatUsage(), "service_tier": g.tier(), "metadata": g.Metadata,
	}
}

// chatEvents is the stream; its terminal events begin with the finish reason.
func (g *generation) chatEvents() (events [][]byte, terminal int) {
	chunk := func(choices []object, usage any) {
		c := object{
			"id": g.id, "object": "chat.completion.chunk", "created": g.created.Unix(), "model": g.Model,
			"service_tier": g.tier(), "choices": choices,
		}
		if g.IncludeUsage {
			c["usage"] = usage
		}
		events = append(events, event("", c))
	}
	delta := func(d object, finish any) {
		chunk([]object{{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish}}, nil)
	}
	delta(object{"role": "assistant", "content": "", "refusal": nil}, nil)
	for _, p := range g.pieces() {
		delta(object{"content": p}, nil)
	}
	terminal = len(events)
	delta(object{}, "stop")
	if g.IncludeUsage {
		chunk([]object{}, g.chatUsage())
	}
	return append(events, []byte("data: [DONE]\n\n")), terminal
}

// response is the responses API's object: queued, in_progress, completed, incomplete, failed or cancelled.
func (g *generation) response(status string) object {
	r := object{
		"id": g.id, "object": "response", "created_at": g.created.Unix(), "status": status, "model": g.Model,
		"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": g.Metadata,
		"output": []object{}, "parallel_tool_calls": true, "temperature": 1, "tool_choice": "auto", "tools": []object{},
		"top_p": 1, "background": g.Background, "store": g.Store, "service_tier": g.tier(), "usage": nil,
	}
	switch status {
	case "completed":
		r["output"] = []object{g.outputMessage("completed", []object{g.outputText(g.text)})}
	case "incomplete":
		r["output"] = []object{g.outputMessage("incomplete", []object{g.outputText(g.pieces()[0])})}
		r["incomplete_details"] = object{"reason": "max_output_tokens"}
	case "failed":
		r["error"] = object{"code": "server_error", "message": "The model had an error."}
	default:
		return r
	}
	r["usage"] = object{
		"input_tokens": g.usage.in, "output_tokens": g.usage.out, "total_tokens": g.usage.in + g.usage.out,
		"input_tokens_details":  object{"cached_tokens": g.usage.cached},
		"output_tokens_details": object{"reasoning_tokens": g.usage.reasoning},
	}
	return r
}

func (g *generation) messageID() string { return "msg_" + g.id[len("resp_"):] }

func (g *generation) outputMessage(status string, content []object) object {
	return object{"id": g.messageID(), "type": "message", "status": status, "role": "assistant", "content": content}
}

func (g *generation) outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

// responseEvents is the stream; its one terminal event is response.completed.
func (g *generation) responseEvents() (events [][]byte, terminal int) {
	emit := func(typ string, data object) {
		data["type"], data["sequence_number"] = typ, len(events)
		events = append(events, event(typ, data))
	}
	part := func(typ string, data object) {
		data["item_id"], data["output_index"], data["content_index"] = g.messageID(), 0, 0
		emit(typ, data)
	}
	emit("response.created", object{"response": g.response("in_progress")})
	emit("response.in_progress", object{"response": g.response("in_progress")})
	emit("response.output_item.added", object{"output_index": 0, "item": g.outputMessage("in_progress", []object{})})
	part("response.content_part.added", object{"part": g.outputText("")})
	for _, p := range g.pieces() {
		part("response.output_text.delta", object{"delta": p, "logprobs": []object{}})
	}
	part("response.output_text.done", object{"text": g.text, "logprobs": []object{}})
	part("response.content_part.done", object{"part": g.outputText(g.text)})
	emit("response.output_item.done", object{"output_index": 0, "item": g.outputMessage("completed", []object{g.outputText(g.text)})})
	terminal = len(events)
	emit("response.completed", object{"response": g.response("completed")})
	return events, terminal
}
