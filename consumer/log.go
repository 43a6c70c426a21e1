package consumer

import (
	"context"
	"log/slog"
	"slices"
)

// subject is the handler of the log for what is said of one delivery or job: it adds what that is called. With of slog
// would keep it as text, for each of the thousands that wait; here it is made when something is said.
type subject struct {
	slog.Handler        // the consumer's
	id           string // of the message; "": there is none
	job, key     string // "": not known yet
	run          int    // 0: none
	fence        int64  // of the run
}

// logger says of w what it is called, with the number and the fence of its run if it has one.
func (c *Consumer) logger(w *work, job string, run int, fence int64) *slog.Logger {
	s := &subject{Handler: c.log.Handler(), job: job, key: w.key.Text, run: run, fence: fence}
	if w.held != nil {
		s.id = w.held.delivery().ID
	}
	return slog.New(s)
}

func (s *subject) attrs() []slog.Attr {
	as := []slog.Attr{slog.String("message_id", s.id)}
	if s.key != "" {
		as = append(as, slog.String("job", s.job), slog.String("key", s.key))
	}
	if s.run > 0 {
		as = append(as, slog.Int("run", s.run), slog.Int64("fence", s.fence))
	}
	return as
}

// Handle implements slog.Handler.
func (s *subject) Handle(ctx context.Context, r slog.Record) error {
	return s.Handler.WithAttrs(s.attrs()).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s *subject) WithAttrs(more []slog.Attr) slog.Handler {
	return s.Handler.WithAttrs(slices.Concat(s.attrs(), more))
}

// WithGroup implements slog.Handler.
func (s *subject) WithGroup(name string) slog.Handler {
	return s.Handler.WithAttrs(s.attrs()).WithGroup(name)
}
