package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/slogtest"

	"encoding/json"
)

// preparing counts how often attributes are prepared.
type preparing struct {
	slog.Handler
	n *int
}

func (p preparing) WithAttrs(as []slog.Attr) slog.Handler {
	*p.n++
	return preparing{p.Handler.WithAttrs(as), p.n}
}

// TestSparing: loggers that write nothing prepare nothing, and what is written is as without.
func TestSparing(t *testing.T) {
	var n int
	var b bytes.Buffer
	l := spare(slog.New(preparing{slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}), &n}))
	first := l.With("job", "a")
	second := first.With("key", "k")
	other := first.With("key", "o")
	second.InfoContext(context.Background(), "not written")
	if n != 0 {
		t.Errorf("attributes were prepared %d times for nothing", n)
	}
	other.Warn("written")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["job"] != "a" || line["key"] != "o" || n != 1 {
		t.Errorf("%s, %v, after %d preparations", b.String(), err, n)
	}
}

// TestSparingRules: it is a handler as all are.
func TestSparingRules(t *testing.T) {
	var b bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		b.Reset()
		return spare(slog.New(slog.NewJSONHandler(&b, nil))).Handler()
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}
