package app

import (
	"cmp"
	"net"
	"net/url"
	"strings"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
)

// links are the ways to other machines that the configuration names, and whether they are safe. Mail has rules of its own, which
// keep a password off a network in the clear.
func (c *call) links(cfg *config.Config) (all []doctor.Link) {
	add := func(part, setting, raw string, safe func(*url.URL) (encrypted, verified bool), fix string) {
		u, err := url.Parse(raw)
		if err != nil || near(u.Hostname()) {
			return // what is no address is refused elsewhere
		}
		encrypted, verified := safe(u)
		all = append(all, doctor.Link{Part: part, Setting: setting, Host: u.Hostname(), Encrypted: encrypted, Verified: verified, Fix: fix})
	}
	scheme := func(secure string) func(*url.URL) (bool, bool) {
		return func(u *url.URL) (bool, bool) { return u.Scheme == secure, u.Scheme == secure }
	}
	if strings.HasPrefix(cfg.Ledger.URL.Scheme(), "postgres") {
		add("ledger", "ledger.url", cfg.Ledger.URL.Reveal(), c.sslMode, "add sslmode=verify-full to it, and sslrootcert where its authority is your own")
	}
	if strings.HasPrefix(cfg.Broker.URL.Scheme(), "amqp") {
		add("broker", "broker.url", cfg.Broker.URL.Reveal(), scheme("amqps"), "write amqps://, or accept it where nobody else is on the network")
	}
	for _, a := range []struct {
		setting string
		url     config.URL
	}{{"broker.endpoint", cfg.Broker.Endpoint}, {"providers.openai.base_url", cfg.Providers.OpenAI.BaseURL},
		{"providers.anthropic.base_url", cfg.Providers.Anthropic.BaseURL}, {"steps.slack.base_url", cfg.Steps.Slack.BaseURL}} {
		if a.url.Reveal() != "" {
			part, _, _ := strings.Cut(a.setting, ".")
			add(part, a.setting, a.url.Reveal(), scheme("https"), "write https://, or accept it where nobody else is on the network")
		}
	}
	return all
}

// sslMode says what a Postgres URL asks for, as its driver reads it.
func (c *call) sslMode(u *url.URL) (encrypted, verified bool) {
	switch cmp.Or(u.Query().Get("sslmode"), c.environment("PGSSLMODE"), "prefer") {
	case "verify-full":
		return true, true
	case "verify-ca", "require":
		return true, false
	}
	return false, false // "prefer" and "allow" go on in the clear with whoever wants that
}

// near reports whether a host is this machine: loopback, or a socket's directory.
func near(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || strings.EqualFold(host, "localhost") || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}
