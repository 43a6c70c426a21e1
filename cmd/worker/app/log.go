package app

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
)

// logger makes the program's logger: JSON for machines, text on a terminal. Secrets of
// the configuration that turn up in other people's errors are taken out.
func logger(cfg *config.Config, w io.Writer) *slog.Logger {
	s := scrubber{scrub: cfg.Scrubber(), json: cfg.Log.Format == "json" || cfg.Log.Format == "auto" && !terminal(w)}
	o := &slog.HandlerOptions{Level: level(cfg.Log.Level), ReplaceAttr: s.attr}
	if s.json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// scrubber takes secrets out of attributes.
type scrubber struct {
	scrub func(string) string
	json  bool // the log is
}

// attr is slog.HandlerOptions.ReplaceAttr. A value whose own code panics is told as slog tells one.
func (s scrubber) attr(_ []string, a slog.Attr) (out slog.Attr) {
	out = slog.Attr{Key: s.scrub(a.Key), Value: a.Value}
	defer func() {
		if p := recover(); p != nil {
			out.Value = slog.StringValue(s.scrub(fmt.Sprintf("!PANIC: %v", p)))
		}
	}()
	switch v := a.Value.Any().(type) {
	case time.Duration:
		out.Value = slog.StringValue(v.String()) // else JSON has nanoseconds, without saying so
	case string:
		out.Value = slog.StringValue(s.scrub(v))
	case error:
		out.Value = slog.StringValue(s.scrub(v.Error()))
	case fmt.Stringer:
		if a.Value.Kind() == slog.KindAny {
			out.Value = slog.StringValue(s.scrub(v.String()))
		}
	default:
		if a.Value.Kind() == slog.KindAny && v != nil {
			out.Value = s.other(v)
		}
	}
	return out
}

// other is a slice, a map, a struct or whatever else a handler logs. In JSON it keeps its form, unless a secret is
// part of that.
func (s scrubber) other(v any) slog.Value {
	if s.json {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err == nil {
			text := s.scrub(strings.TrimSpace(b.String()))
			if json.Valid([]byte(text)) {
				return slog.AnyValue(json.RawMessage(text))
			}
			return slog.StringValue(text)
		}
	}
	switch v := v.(type) {
	case []byte:
		return slog.StringValue(s.scrub(string(v)))
	case encoding.TextMarshaler:
		if text, err := v.MarshalText(); err == nil {
			return slog.StringValue(s.scrub(string(text)))
		}
	}
	return slog.StringValue(s.scrub(fmt.Sprintf("%+v", v)))
}

func level(name string) (l slog.Level) {
	if err := l.UnmarshalText([]byte(name)); err != nil {
		panic(err) // the configuration allows only names of levels
	}
	return l
}

// terminal reports whether w shows text to a person.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
