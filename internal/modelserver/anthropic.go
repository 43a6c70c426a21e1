package modelserver

// Anthropic's shapes, as anthropic-sdk-go v2 reads them.

func anthropicError(r refusal, requestID string) object {
	e := object{"type": r.anthropic, "message": r.message}
	if r.anthropicCode != "" {
		e["details"] = object{"error_code": r.anthropicCode}
	}
	return object{"type": "error", "error": e, "request_id": requestID}
}

// messageUsage leaves the tokens of the caches out of input_tokens, as Anthropic does.
func (g *generation) messageUsage(out int64) object {
	u := g.usage
	return object{
		"input_tokens": u.in - u.cached - u.written - u.written1h, "cache_read_input_tokens": u.cached,
		"cache_creation_input_tokens": u.written + u.written1h, "output_tokens": out, "service_tier": g.tier(),
		"cache_creation":        object{"ephemeral_5m_input_tokens": u.written, "ephemeral_1h_input_tokens": u.written1h},
		"output_tokens_details": object{"thinking_tokens": min(out, u.reasoning)},
	}
}

func (g *generation) message(content []object, stop any, out int64) object {
	return object{
		"id": g.id, "type": "message", "role": "assistant", "model": g.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": g.messageUsage(out),
	}
}

// messageEvents is the stream; its one terminal event is message_stop.
func (g *generation) messageEvents() (events [][]byte, terminal int) {
	emit := func(typ string, data object) {
		data["type"] = typ
		events = append(events, event(typ, data))
	}
	emit("message_start", object{"message": g.message([]object{}, nil, 1)})
	emit("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	emit("ping", object{})
	for _, p := range g.pieces() {
		emit("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": p}})
	}
	emit("content_block_stop", object{"index": 0})
	emit("message_delta", object{
		"delta": object{"stop_reason": "end_turn", "stop_sequence": nil},
		"usage": g.messageUsage(g.usage.out),
	})
	terminal = len(events)
	emit("message_stop", object{})
	return events, terminal
}
