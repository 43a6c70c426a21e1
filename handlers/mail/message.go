package mail

import (
	"bytes"
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"
	"unicode"

	gomail "github.com/wneessen/go-mail"
)

// render makes the mail's recipients and its text.
func (s *Server) render(m Message, id string) (to []*netmail.Address, text []byte, err error) {
	out := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	out.FromMailAddress(s.from)
	for _, t := range m.To {
		a, err := address(t)
		if err != nil {
			return nil, nil, fmt.Errorf("PO602 the mail cannot be written: recipient %q is no address: %w", t, err)
		}
		to = append(to, a)
	}
	switch {
	case len(to) == 0:
		return nil, nil, errors.New("PO602 the mail cannot be written: it has no recipient")
	case unsafe(m.Subject):
		return nil, nil, fmt.Errorf("PO602 the mail cannot be written: subject %q has line ends or other control characters", m.Subject)
	}
	out.ToMailAddress(to...)
	out.Subject(m.Subject)
	out.SetMessageIDWithValue(id)
	out.SetDate()
	out.SetBodyString(gomail.TypeTextPlain, m.Text)
	if m.HTML != "" {
		out.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	}
	var b bytes.Buffer
	if _, err := out.WriteTo(&b); err != nil {
		return nil, nil, fmt.Errorf("PO602 the mail cannot be written: %w", err)
	}
	return to, b.Bytes(), nil
}

// address reads one mail address. What could end a header's line is refused, also where it is hidden in an
// encoded name.
func address(s string) (*netmail.Address, error) {
	if unsafe(s) {
		return nil, errors.New("it has line ends or other control characters")
	}
	a, err := netmail.ParseAddress(s)
	if err == nil && (unsafe(a.Name) || unsafe(a.Address)) {
		return nil, errors.New("it hides line ends or other control characters")
	}
	return a, err
}

func unsafe(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

// envelope is an address as SMTP's commands take it.
func envelope(a *netmail.Address) string { return (&netmail.Address{Address: a.Address}).String() }
