package doctor

import (
	"slices"
	"testing"
	"time"
)

func TestRetentionFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"webhooks come later":  {func(f *Facts) { f.Windows.KeyRetention = 3*24*time.Hour - 1 }, []string{"PO555 warning"}},
		"webhooks come before": {func(f *Facts) { f.Windows.KeyRetention = 3 * 24 * time.Hour }, nil},
		"of any broker": {func(f *Facts) {
			f.Broker = Broker{Memory: true}
			f.Windows.KeyRetention = time.Hour
		}, []string{"PO018 warning", "PO555 warning"}},
		"dead letters": {func(f *Facts) { f.Broker.RabbitMQ.DeadLetter.Messages = 1 }, []string{"PO556 info"}},
	} {
		f := well()
		c.change(&f)
		if got := codes(f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
