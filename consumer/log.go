package consumer

import (
	"context"
	"log/slog"
	"slices"
)

// sparing is a log handler that prepares the attributes of a logger when a line is written, and not when the logger is
// made: every delivery has loggers of its own, and most of them write nothing.
type sparing struct {
	to    slog.Handler
	attrs []slog.Attr // that to has not been given
}

func spare(l *slog.Logger) *slog.Logger { return slog.New(sparing{to: l.Handler()}) }

// Enabled implements slog.Handler.
func (h sparing) Enabled(ctx context.Context, level slog.Level) bool { return h.to.Enabled(ctx, level) }

// Handle implements slog.Handler.
func (h sparing) Handle(ctx context.Context, r slog.Record) error { return h.prepared().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (h sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{h.to, append(slices.Clip(h.attrs), attrs...)}
}

// WithGroup implements slog.Handler.
func (h sparing) WithGroup(name string) slog.Handler {
	return sparing{to: h.prepared().WithGroup(name)}
}

func (h sparing) prepared() slog.Handler {
	if len(h.attrs) == 0 {
		return h.to
	}
	return h.to.WithAttrs(h.attrs)
}
