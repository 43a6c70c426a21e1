package app

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
)

// logger makes the program's logger: JSON for machines, text on a terminal. Secrets of
// the configuration that turn up in other people's errors are taken out.
func logger(cfg *config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level(cfg.Log.Level), ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case time.Duration:
			a.Value = slog.StringValue(v.String()) // else JSON has nanoseconds, without saying so
		case string:
			a.Value = slog.StringValue(cfg.Scrub(v))
		case error:
			a.Value = slog.StringValue(cfg.Scrub(v.Error()))
		case fmt.Stringer:
			if a.Value.Kind() == slog.KindAny {
				a.Value = slog.StringValue(cfg.Scrub(v.String()))
			}
		}
		return a
	}}
	if cfg.Log.Format == "json" || cfg.Log.Format == "auto" && !terminal(w) {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
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
