package app

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/worker/config"
)

// TestWindowsGrowWithARoute: those that nobody set. One that was set too short is refused.
func TestWindowsGrowWithARoute(t *testing.T) {
	t.Chdir(t.TempDir())
	routes := "PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: only, provider: anthropic, model: m, timeout: 20m}]"
	for set, want := range map[string]string{
		"":                                    "",
		"PAIDONCE_CONSUMER_SETTLE_WINDOW=10m": "PO031",
		"PAIDONCE_CONSUMER_HOLD=15m":          "PO026",
	} {
		cfg, err := config.Load(config.Options{Environ: []string{routes, set}, Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()})
		if err != nil {
			t.Fatal(err)
		}
		err = windows(cfg)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", set, err, want)
		}
	}
}
