package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// check finds what single values cannot show: addresses, routes, and settings
// that contradict each other. The consumer's own windows are checked by package
// consumer, which knows why.
func (l *loader) check() {
	c := l.config
	for _, s := range c.settings {
		if schemes := s.tag.Get("schemes"); schemes != "" {
			l.checkURL(s, strings.Split(schemes, ","))
		}
	}
	if c.Broker.Queue == "" {
		l.at("PO034", "broker.queue", "the queue needs a name")
	}
	if c.Broker.DeadLetter != "" && c.Broker.DeadLetter == c.Broker.Queue {
		l.at("PO033", "broker.dead_letter", "it is the queue itself (broker.queue, "+l.config.Source("broker.queue").String()+"): what is set aside would come right back; name another")
	}
	l.checkSQS()
	l.checkKeys()
	if c.Retention.Key < c.Retention.Result {
		l.at("PO032", "retention.key", fmt.Sprintf("it is shorter than retention.result %s (%s): a key must outlive its result, or a late duplicate is paid again; raise it", c.Retention.Result, c.Source("retention.result")))
	}
	l.positive()
	l.checkLimits()
	l.checkListen("http.listen", c.HTTP.Listen)
	if l.checkListen("http.debug", c.HTTP.Debug) && !loopback(c.HTTP.Debug) {
		l.at("PO035", "http.debug", "profiles show what is in memory and may be served on loopback only; write 127.0.0.1 and a port")
	}
	for _, s := range c.settings {
		if routes, ok := s.value.Interface().([]Route); ok {
			l.checkRoutes(s.path, routes)
		}
	}
	l.checkSteps()
}

// minVisibility is three times what one extension may take at SQS: a second until the
// keeper looks, five for the request.
const minVisibility = 18 * time.Second

// checkSQS refuses what is of SQS alone with another broker, and what SQS cannot do.
func (l *loader) checkSQS() {
	c := l.config
	if c.Broker.URL.Scheme() == "sqs" {
		if v := c.Consumer.Visibility.Std(); v != 0 && v < minVisibility {
			l.at("PO038", "consumer.visibility", fmt.Sprintf("it is too short: the message would not outlast two failed extensions; set at least %s, or 0s for the queue's own", minVisibility))
		}
		return
	}
	for path, set := range map[string]bool{"broker.endpoint": c.Broker.Endpoint.Reveal() != "", "broker.region": c.Broker.Region != ""} {
		if set {
			l.at("PO037", path, "it is for SQS, and broker.url ("+c.Source("broker.url").String()+") names another broker; take it out, or set broker.url to sqs:")
		}
	}
}

// positive refuses zeros in the consumer's section and of turns, since the packages that get them would take them
// for their defaults, which is not what was written, and a retention that keeps nothing.
func (l *loader) positive() {
	for _, s := range l.config.settings {
		counts := strings.HasPrefix(s.path, "consumer.") || strings.HasPrefix(s.path, "retention.") || strings.HasSuffix(s.path, ".max_turns")
		if !counts || s.path == "consumer.visibility" || s.value.Kind() == reflect.Bool {
			continue
		}
		if s.value.IsZero() || s.value.CanInt() && s.value.Int() < 0 {
			l.at("PO036", s.path, "it must be positive; leave it out for the default "+s.tag.Get("default"))
		}
	}
}

// checkLimits refuses limits of a job that bound nothing, or more than nothing.
func (l *loader) checkLimits() {
	for _, s := range l.config.settings {
		switch {
		case !strings.HasPrefix(s.path, "jobs."):
		case strings.HasSuffix(s.path, ".max_calls") && (s.value.Int() < 0 || s.value.Int() > math.MaxInt32):
			l.at("PO627", s.path, "write how many calls one job may send in all of its runs, up to 2147483647; 0 is no limit")
		case strings.HasSuffix(s.path, ".lifetime") && s.value.Int() != 0 && s.value.Int() < int64(time.Millisecond):
			l.at("PO627", s.path, "no call could be sent in so short a time; write it like 2h, or 0s for no limit")
		}
	}
}

// at notes a fault of an effective value.
func (l *loader) at(code, path, text string) {
	s, _ := l.setting(path)
	l.fault(code, path, s.printable(s.show()), l.config.Source(path), text)
}

func (l *loader) checkURL(s setting, schemes []string) {
	u, ok := s.value.Interface().(URL)
	if !ok {
		panic("config: schemes on " + s.path + ", which is no URL") // a tag of Config
	}
	if u.text == "" && s.tag.Get("default") == "" {
		return
	}
	one := "write one that begins with " + strings.Join(schemes, ":, ") + ":"
	if !slices.Contains(schemes, u.Scheme()) || !strings.Contains(u.text, ":") {
		l.at("PO008", s.path, one+didYouMean(nearest(u.Scheme(), schemes)))
		return
	}
	if slices.Contains([]string{"memory", "sqlite", "sqs"}, u.Scheme()) {
		return
	}
	rest, ok := strings.CutPrefix(u.text, u.Scheme()+"://")
	if !ok || rest == "" || rest[0] == '/' {
		l.at("PO008", s.path, "it names no host; write "+u.Scheme()+"://host/…")
		return
	}
	if strings.HasPrefix(u.Scheme(), "http") {
		if p, err := url.Parse(u.text); err != nil || p.Host == "" || p.RawQuery != "" || p.Fragment != "" {
			l.at("PO008", s.path, "it is no base URL; write scheme, host and path only, such as https://gateway.example/v1/")
		}
	}
}

func (l *loader) checkListen(path, addr string) bool {
	if addr == "" {
		return false
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		l.at("PO015", path, "write host and port, such as 127.0.0.1:8080")
		return false
	}
	return true
}

func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr) // checked before
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (l *loader) checkRoutes(path string, routes []Route) {
	if len(routes) == 0 {
		l.at("PO013", path, "a job needs at least one route")
	}
	seen := map[string]bool{}
	for i, r := range routes {
		fault := func(field, value, text string) {
			l.fault("PO013", fmt.Sprintf("%s[%d].%s", path, i, field), value, l.config.Source(path), text)
		}
		switch {
		case r.Name == "":
			fault("name", "", "a route needs a name")
		case seen[r.Name]:
			fault("name", r.Name, "two routes of a job cannot have one name")
		}
		seen[r.Name] = true
		if !slices.Contains(l.Providers, r.Provider) {
			fault("provider", r.Provider, "write one of "+strings.Join(l.Providers, ", ")+didYouMean(nearest(r.Provider, l.Providers)))
		}
		if r.Model == "" {
			fault("model", "", "a route needs a model")
		}
		if r.Timeout == 0 {
			fault("timeout", "0s", "a route needs a timeout; write 90s")
		}
		if r.Background && r.Provider != "openai" {
			fault("background", "true", "only OpenAI has a background mode; take it out")
		}
		if job, _, _ := strings.Cut(strings.TrimPrefix(path, "jobs."), ".routes"); r.Background && l.Turns[job] > 0 {
			fault("background", "true", job+" calls tools and does not use the background mode; take it out")
		}
		if r.TrustAbsence && (r.Provider != "openai" || r.Background) {
			fault("trust_absence", "true", "only OpenAI's stored completions can be listed, and no route in background mode; take it out")
		}
		for field, n := range map[string]int{"at_once": r.AtOnce, "per_minute": r.PerMinute} {
			if n < 0 {
				fault(field, itoa(n), "write a number of attempts; 0 is no bound")
			}
		}
	}
}

// LedgerFault says why no ledger can be opened with this configuration, or nil.
// Commands that need none do not ask.
func (c *Config) LedgerFault() error {
	path, ok := c.LedgerFile()
	if !ok || path != "" && !strings.Contains(path, "?") && !strings.HasPrefix(path, "//") {
		return nil
	}
	return Fault{Code: "PO009", Path: "ledger.url", Value: c.Ledger.URL.String(), Source: c.Source("ledger.url"),
		Text: "write sqlite: and the path of a file, such as sqlite:paidonce.db or sqlite:/var/lib/paidonce/ledger.db; there are no options"}
}

// LedgerFile is the path of the embedded ledger, as it is seen from the working directory;
// false: another ledger is configured.
func (c *Config) LedgerFile() (string, bool) {
	return strings.CutPrefix(c.Ledger.URL.Reveal(), "sqlite:")
}
