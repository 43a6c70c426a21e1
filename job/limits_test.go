package job

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestLimitsAreChecked: a limit that nobody can keep to is a programmer's mistake, found at start.
func TestLimitsAreChecked(t *testing.T) {
	for want, limits := range map[string]Limits{
		"":               {USD: ledger.USD, Calls: 1, Lifetime: time.Millisecond},
		"Limits.USD":     {USD: -1},
		"Limits.Calls":   {Calls: -1},
		"Calls of 4294":  {Calls: 1 << 32},
		"Lifetime of -1": {Lifetime: -time.Second},
		"Lifetime of 1µ": {Lifetime: time.Microsecond},
	} {
		func() {
			var reg Registry
			defer func() {
				v, _ := recover().(string)
				if (v != "") != (want != "") || want != "" && (!strings.HasPrefix(v, "PO323 job a: ") || !strings.Contains(v, want)) {
					t.Errorf("%+v: panic %q, want one that names %q", limits, v, want)
				}
				if h, ok := reg.Lookup("a"); ok != (want == "") || ok && h.Limits() != limits {
					t.Errorf("%+v: registered %v", limits, ok)
				}
			}()
			Register(&reg, Def[keyless, string]{Name: "a", Limits: limits, Handle: func(context.Context, *Run, keyless) (string, error) { return "", nil }})
		}()
	}
}

type keyless struct{}

func (keyless) JobKey() Key { return K("acme", "a", "1") }
