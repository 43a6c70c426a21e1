package job

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// Key is an idempotency key: the name of one business action. It is made by a
// message's JobKey method, from the message's own content and nothing else, so that
// a producer, a worker and a repeated delivery all arrive at the same one.
//
// The printed form is readable and one-to-one with the parts:
//
//	job.K("acme", "invoice.extract", "9821").Rev(3).Prompt("p7") // acme:invoice.extract:9821:v3:p7
//
// Parts are joined with colons. In a part a colon, a percent sign, ASCII white space
// and control characters are percent-encoded, and so is the first letter of
// a part that could be taken for a revision or a prompt version ("v3" prints as
// "%763"). Two tenants, or two ways of splitting the parts, never print the same.
type Key struct {
	parts  []string // tenant, action, entity…
	rev    string   // "v3", or ""
	prompt string   // "p7", or ""
	err    error
}

// MaxKey is the longest printed key, in bytes.
const MaxKey = 512

// K begins a key: the tenant the work is done for (required, so that two tenants never
// share an answer), the action (the handler's name), and what identifies
// the thing acted on. Empty parts, and parts that are a point in time (RFC 3339), are
// refused: a key with a clock in it is new at every delivery.
func K(tenant, action string, entity ...string) Key {
	k := Key{parts: append(append(make([]string, 0, 2+len(entity)), tenant, action), entity...)}
	if len(entity) == 0 {
		return k.refuse("names no entity: add what the job is about, such as a document id")
	}
	for i, p := range k.parts {
		if why := badPart(p); why != "" {
			return k.refuse(fmt.Sprintf("part %d (%s) %s", i+1, partName(i), why))
		}
	}
	return k
}

// Rev adds the revision of the thing acted on: an edited document is another job.
func (k Key) Rev(n int) Key {
	if n < 0 {
		return k.refuse(fmt.Sprintf("revision %d is negative", n))
	}
	k.rev = "v" + strconv.Itoa(n)
	return k
}

// Prompt adds the version of the prompt, a p and a number such as "p7" or "p7.1": another
// prompt gives another answer, so it is another job.
func (k Key) Prompt(version string) Key {
	if !named(version, 'p') || strings.Trim(version[1:], "0123456789.") != "" {
		return k.refuse(fmt.Sprintf("prompt version %q is not a p and a number, such as p7", version))
	}
	k.prompt = version
	return k
}

// Tenant is the tenant as given to K.
func (k Key) Tenant() string {
	if len(k.parts) == 0 {
		return ""
	}
	return k.parts[0]
}

// Action is the action as given to K.
func (k Key) Action() string {
	if len(k.parts) < 2 {
		return ""
	}
	return k.parts[1]
}

// String prints the key. A key that does not pass Check prints all the same, for
// messages about it.
func (k Key) String() string {
	var b strings.Builder
	b.Grow(k.size())
	for i, p := range k.parts {
		if i > 0 {
			b.WriteByte(':')
		}
		escape(&b, p)
	}
	for _, p := range []string{k.rev, k.prompt} {
		if p != "" {
			b.WriteByte(':')
			b.WriteString(p)
		}
	}
	return b.String()
}

// size is the length of the printed key if nothing in it is escaped; what is takes three bytes for one.
func (k Key) size() int {
	n := len(k.rev) + len(k.prompt) + len("::")
	for _, p := range k.parts {
		n += len(p) + len(":")
	}
	return n
}

// same reports whether both print the same.
func (k Key) same(other Key) bool {
	return slices.Equal(k.parts, other.parts) && k.rev == other.rev && k.prompt == other.prompt
}

// Check returns why the key cannot be used, or nil.
func (k Key) Check() error {
	switch {
	case k.err != nil:
		return k.err
	case len(k.parts) == 0:
		return errors.New("PO301 the job has no key: JobKey must return job.K(…)")
	case 3*k.size() > MaxKey && len(k.String()) > MaxKey: // printing is dear, and keys are checked often
		return fmt.Errorf("PO301 key %.40s… is longer than %d bytes", k, MaxKey)
	}
	return nil
}

// Ledger is the key as the ledger knows it.
func (k Key) Ledger() ledger.Key { return ledger.Key{Tenant: k.Tenant(), Text: k.String()} }

// ParseKey reads a printed key as far as the ledger needs it: the tenant is its
// first part.
func ParseKey(s string) (ledger.Key, error) {
	first, rest, ok := strings.Cut(s, ":")
	tenant, err := unescape(first)
	if !ok || rest == "" || tenant == "" || err != nil {
		return ledger.Key{}, fmt.Errorf("PO302 %q is no job key: it looks like tenant:action:entity", s)
	}
	return ledger.Key{Tenant: tenant, Text: s}, nil
}

func (k Key) refuse(why string) Key {
	if k.err == nil {
		k.err = fmt.Errorf("PO301 key %q %s", k.String(), why)
	}
	return k
}

func partName(i int) string {
	return [...]string{"tenant", "action", "entity"}[min(i, 2)]
}

func badPart(p string) string {
	switch {
	case p == "":
		return "is empty"
	case !utf8.ValidString(p):
		return "is not UTF-8"
	case strings.ContainsRune(p, 0):
		return "holds a zero byte"
	}
	if dated(p) {
		return "is a point in time: it would be new at every delivery"
	}
	return ""
}

// dated reports whether p is a point in time. Parsing is not tried on what cannot be one: it is dear, and keys are made often.
func dated(p string) bool {
	if len(p) < len("2006-01-02T") || p[4] != '-' || p[7] != '-' || p[10] != 'T' {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, p)
	return err == nil
}

// named reports whether p reads as a named part: the letter and a digit.
func named(p string, letter byte) bool {
	return len(p) >= 2 && p[0] == letter && p[1] >= '0' && p[1] <= '9'
}

func escape(b *strings.Builder, p string) {
	for i, c := range []byte(p) {
		first := i == 0 && (named(p, 'v') || named(p, 'p'))
		if first || c <= ' ' || c == ':' || c == '%' || c == 0x7f {
			fmt.Fprintf(b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
}

func unescape(p string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] != '%' {
			b.WriteByte(p[i])
			continue
		}
		if i+2 >= len(p) {
			return "", errors.New("cut escape")
		}
		c, err := strconv.ParseUint(p[i+1:i+3], 16, 8)
		if err != nil {
			return "", err
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}
