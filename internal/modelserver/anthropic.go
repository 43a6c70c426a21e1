package modelserver

// Anthropic's shapes, as anthropic-sdk-go v2 reads them.

func anthropicError(r refusal, requestID string) object {
	e := object{"type": r.anthropic, "message": r.message}
	if r.anthropicCode != "" {
		e["details"] = object{"error_code": r.anthropicCode}
	}
	return object{"type": "error", "error": e, "request_id": requestID}
}

// messageUsage leaves the cached tokens out of input_tokens, as Anthropic does.
func (g *generation) messageUsage(out int64) object {
	return object{
		"input_tokens": g.usage.in - g.usage.cached, "cache_read_input_tokens": g.usage.cached,
		"cache_creation_input_tokens": 0, "output_tokens": out, "service_tier": "standard",
		"cache_creation": object{"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
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
