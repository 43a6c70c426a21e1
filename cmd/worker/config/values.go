package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Duration is a length of time that must be written with its unit: 90 was meant as
// seconds by whoever wrote it, and is nanoseconds to most parsers.
type Duration time.Duration

// Std is the duration as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String prints the duration as it would be written: 25s, 1h30m, 30d.
func (d Duration) String() string {
	const day = 24 * time.Hour
	std := d.Std()
	if std >= day && std%day == 0 {
		return strconv.Itoa(int(std/day)) + "d"
	}
	s := std.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 250ms, 90s, 1h30m, 30d.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return fmt.Errorf("PO006 %q has no unit; write %gs if seconds were meant", s, n)
	}
	if s == "" {
		return errors.New("PO006 it is empty; write it like 90s, 10m, 1h30m or 30d")
	}
	bad := fmt.Errorf("PO006 %q is no duration; write it like 90s, 10m, 1h30m or 30d", s)
	var days, std time.Duration
	if before, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return bad
		}
		days, s = time.Duration(n)*24*time.Hour, after
	}
	if s != "" {
		var err error
		if std, err = time.ParseDuration(s); err != nil {
			return bad
		}
	}
	if std < 0 {
		return fmt.Errorf("PO006 %q is negative; write a length of time", text)
	}
	*d = Duration(days + std)
	return nil
}

const hidden = "(hidden)"

// Secret is a text that is never printed: formatting, logging and encoding it show
// only whether it is set.
type Secret struct{ text string }

// Reveal is the text, for whoever sends it to its owner.
func (s Secret) Reveal() string { return s.text }

// String hides the text.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return hidden
}

// Format hides the text from every verb, %#v included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) } // as fmt does

// LogValue hides the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON hides the text.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(s.String())), nil }

// UnmarshalText takes the text.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = string(text)
	return nil
}

// URL is an address that may have a password in it, which is never printed.
type URL struct{ text string }

// Reveal is the whole address, for whoever connects.
func (u URL) Reveal() string { return u.text }

// Scheme is what stands before the first colon.
func (u URL) Scheme() string {
	scheme, _, _ := strings.Cut(u.text, ":")
	return scheme
}

// String is the address without its password.
func (u URL) String() string {
	s, _ := redact(u.text)
	return s
}

// Format hides the password from every verb, %#v included.
func (u URL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.String()) } // as fmt does

// LogValue hides the password.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalJSON hides the password.
func (u URL) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(u.String())), nil }

// UnmarshalText takes the text; what is wrong with it is said when everything is checked.
func (u *URL) UnmarshalText(text []byte) error {
	u.text = string(text)
	return nil
}

// redact prints an address without its secrets, and lists those. It hides too much
// rather than too little, since it is also given what is no address at all.
func redact(raw string) (string, []string) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return Secret{raw}.String(), nil
	}
	rest, slashes := strings.CutPrefix(rest, "//")
	var found []string
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, has := strings.Cut(rest[:at], ":")
		switch {
		case has:
			found = append(found, password)
			rest = user + ":" + hidden + rest[at:]
		case !slashes: // user:password@host, where the scheme was forgotten
			found = append(found, user)
			rest = hidden + rest[at:]
		}
	}
	if path, query, has := strings.Cut(rest, "?"); has {
		pairs := strings.Split(query, "&")
		for i, p := range pairs {
			if name, value, _ := strings.Cut(p, "="); secretName(name) {
				found = append(found, value)
				pairs[i] = name + "=" + hidden
			}
		}
		rest = path + "?" + strings.Join(pairs, "&")
	}
	if slashes {
		rest = "//" + rest
	}
	for _, f := range found {
		if plain, err := url.PathUnescape(f); err == nil && plain != f {
			found = append(found, plain)
		}
	}
	return scheme + ":" + rest, found
}

func secretName(name string) bool {
	for _, s := range []string{"password", "secret", "token", "passphrase", "api_key", "apikey"} {
		if strings.Contains(strings.ToLower(name), s) {
			return true
		}
	}
	return false
}

// USD is an amount of money in the configuration: a plain number of dollars.
type USD struct{ ledger.Nano }

// UnmarshalText reads decimal dollars, such as 0.25.
func (u *USD) UnmarshalText(text []byte) error {
	n, err := ledger.ParseUSD(string(text))
	if err == nil && n < 0 {
		err = errors.New("PO007 a budget cannot be negative; 0 is no budget")
	}
	u.Nano = n
	return err
}

// Tenants are amounts of money by tenant, as a mapping: {acme: 200, globex: 0.5}.
type Tenants struct{ Of map[string]USD }

// String prints the mapping, sorted.
func (t Tenants) String() string {
	if len(t.Of) == 0 {
		return "{}"
	}
	var parts []string
	for _, tenant := range slices.Sorted(maps.Keys(t.Of)) {
		parts = append(parts, tenant+": "+t.Of[tenant].String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// MarshalJSON has the amounts as decimal texts.
func (t Tenants) MarshalJSON() ([]byte, error) {
	all := map[string]string{}
	for tenant, u := range t.Of {
		all[tenant] = u.String()
	}
	return json.Marshal(all)
}

// Policy is what happens to an unknown call.
type Policy struct{ job.Policy }

// UnmarshalText reads hold, replay:N or fail.
func (p *Policy) UnmarshalText(text []byte) (err error) {
	p.Policy, err = job.ParsePolicy(string(text))
	return err
}
