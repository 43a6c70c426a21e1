//go:build size

package outage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
)

// KiB of private memory: 85 to 94 thousand were measured; docs/design.md says what they
// are. The program's own pages come from its file, and are shared.
const mostMemory = 105 << 10

// A thousand paid calls are under way in the worker with the vendors' SDKs. make size.
func TestThousandInFlight(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	r.models.ScriptAny(modelserver.Fault{Hold: true, Times: -1})
	cmd := r.program("../../cmd/worker", "run")
	cmd.Env = append(cmd.Env,
		"PAIDONCE_LEDGER_URL="+r.direct, "PAIDONCE_BROKER_URL="+r.rabbit.conf.URL, "PAIDONCE_BROKER_QUEUE="+r.rabbit.conf.Queue,
		"PAIDONCE_PROVIDERS_OPENAI_BASE_URL="+r.models.URL()+"/v1/", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted-in-tests",
		"PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL="+r.models.URL(), "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=sk-ant-planted-in-tests",
		"PAIDONCE_HTTP_LISTEN=127.0.0.1:0", fmt.Sprint("PAIDONCE_CONSUMER_WORKERS=", jobsInFlight))
	p := r.begin(cmd)
	r.wantIdle(p)
	private, _ := r.thousand(p, ticket, func(n int) string { return fmt.Sprintf("acme:%s:%d:v1:%s", summarize.Name, n, summarize.Prompt) })
	if private > mostMemory {
		t.Errorf("%d calls under way take %d KiB, want at most %d", jobsInFlight, private, mostMemory)
	}
}

// ticket is a message of the bundled handler, as large as a short thread.
func ticket(n int) broker.Message {
	body := fmt.Sprintf(`{"tenant":"acme","ticket":"%d","revision":1,"thread":"%s"}`, n, strings.Repeat("The invoice was charged twice. ", 30))
	return broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: summarize.Name}}
}
