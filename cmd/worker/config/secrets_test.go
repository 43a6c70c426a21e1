package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// planted are in the configuration of these tests and must never be seen again.
var planted = []string{"hunter2", "s3cr3t-amqp", "sk-openai-planted", "sk-ant-planted", "mail-pw-planted", "xoxb-planted", "q-planted", plantedKey[:10]}

const plantedKey = "cGxhbnRlZCBwbGFudGVkIHBsYW50ZWQgcGxhbnRlZCE="

const secretFile = `ledger: {url: "postgres://ledger:hunter2@db.example/paidonce?sslmode=require&sslpassword=q-planted", encryption: {keys: "k1:` + plantedKey + `"}}
broker: {url: "amqps://worker:s3cr3t-amqp@rabbit.example/"}
providers:
  openai: {api_key: sk-openai-planted}
  anthropic: {base_url: "https://gateway.example"}
steps:
  email: {smtp_url: "smtps://mailer:mail-pw-planted@mail.example:465", from: support@acme.example}
  slack: {token: xoxb-planted}
`

func secretConfig(t *testing.T) *Config {
	t.Helper()
	c, err := load(t, secretFile, []string{"PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=sk-ant-planted"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clean(t *testing.T, what, text string) {
	t.Helper()
	for _, s := range planted {
		if strings.Contains(text, s) {
			t.Errorf("%s shows the secret %q:\n%s", what, s, text)
		}
	}
}

func golden(t *testing.T, dir, name, got string) {
	t.Helper()
	path := filepath.Join(dir, "testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got\n%s", path, got)
	}
}

func TestShow(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := secretConfig(t)
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	clean(t, "config show", b.String())
	golden(t, dir, "show.golden", b.String())
	doc, err := json.MarshalIndent(c.JSON(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	clean(t, "config show --json", string(doc))
	golden(t, dir, "show.json.golden", string(doc)+"\n")
}

// Whatever somebody does with a configuration by mistake, no secret comes out.
func TestSecretsStayHidden(t *testing.T) {
	c := secretConfig(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for name, v := range map[string]any{
			"ledger": c.Ledger, "broker": &c.Broker, "providers": c.Providers, "steps": c.Steps,
			"secret": c.Providers.OpenAI.APIKey, "pointer": &c.Steps.Slack.Token, "url": c.Ledger.URL} {
			clean(t, name+" "+verb, fmt.Sprintf(verb, v))
		}
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("x", "ledger", c.Ledger, "providers", c.Providers, "token", c.Steps.Slack.Token, "url", c.Broker.URL)
		clean(t, "slog "+name, b.String())
		if !strings.Contains(b.String(), "rabbit.example") {
			t.Errorf("slog %s hides more than the password: %s", name, b.String())
		}
	}
}

func TestScrub(t *testing.T) {
	c := secretConfig(t)
	got := c.Scrub("dial failed: postgres://ledger:hunter2@db.example: 401 for key sk-openai-planted")
	if want := "dial failed: postgres://ledger:(hidden)@db.example: 401 for key (hidden)"; got != want {
		t.Errorf("scrubbed to %q, want %q", got, want)
	}
}

// TestScrubNested: a secret that another one begins with leaves nothing of it, in whichever setting each stands.
func TestScrubNested(t *testing.T) {
	const short, long = "planted-pw", "planted-pw-and-the-rest"
	for _, pair := range [][2]string{{short, long}, {long, short}} {
		c, err := load(t, `ledger: {url: "postgres://ledger:`+pair[0]+`@db.example/paidonce"}`, []string{"PAIDONCE_PROVIDERS_OPENAI_API_KEY=" + pair[1]})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Scrub("key " + long + ", password " + short); got != "key (hidden), password (hidden)" {
			t.Errorf("of %q: scrubbed to %q", pair, got)
		}
	}
}

// A fault in a secret value names the setting and not the value.
func TestFaultsHideSecrets(t *testing.T) {
	for _, file := range []string{
		"ledger: {url: 'postgres//u:hunter2@h/d'}", "ledger: {url: 'u:hunter2@h/d'}", "ledger: {url: 'hunter2@h/d'}", "ledger: {url: 'postgres:u:hunter2@h/d'}",
		"ledger: {url: 'mysql://u:hunter2/x@h/d'}", "ledger: {url: 'mysql://u:hun?hunter2@h/d'}", "ledger: {url: 'mysql://h/d?password=hunter2'}",
		"broker: {url: hunter2}", "providers: {openai: {api_key: [hunter2]}}", "providers: {openai: {api_key: {a: hunter2}}}", "providers:\n  openai: {api_key: hunter2\n",
	} {
		_, err := load(t, file, nil)
		if err == nil {
			t.Errorf("%s is accepted", file)
			continue
		}
		clean(t, file, err.Error())
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("postgres", "user", "hunter2", "host/db")
	f.Add("amqp", "", "p@ss:w/rd?", "h")
	f.Fuzz(func(t *testing.T, scheme, user, password, host string) {
		if len(password) < 6 || strings.ContainsAny(scheme+user+host, ":@/?&") || strings.Contains(scheme+user+host+hidden+"://@", password) {
			return // the password would be found elsewhere
		}
		raw := scheme + "://" + user + ":" + password + "@" + host
		if got, _ := redact(raw); strings.Contains(got, password) {
			t.Errorf("%q prints as %q", raw, got)
		}
	})
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0,
	} {
		var d, again Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want {
			t.Errorf("%q reads as %s, %v; want %s", text, d.Std(), err, want)
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%q prints as %q, which reads as %s, %v", text, d, again.Std(), err)
		}
	}
	for _, text := range []string{"", "0", "90", "-1s", "1.5", "s", "d", "5dd", "1d-3h", "9999999d", "1 h", "NaN", "1e3"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %s, want an error", text, d)
		}
	}
}
