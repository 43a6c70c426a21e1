package mail

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	netmail "net/mail"
	"net/url"
	"strings"
)

// Server is where mail is handed in. Make one with NewServer.
type Server struct {
	// Roots verify the server's certificate. nil: the system's.
	Roots *x509.CertPool
	// Dial opens the connection, below TLS. nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	addr     string // host:port
	host     string
	implicit bool // TLS from the first byte: smtps
	startTLS bool // required; false: the connection stays as it is
	user     string
	password string
	from     *netmail.Address
}

// ErrSender: the sender of mail is no address. It is the one error of NewServer that is not about the server's.
var ErrSender = errors.New("PO601 the sender is no mail address; write Support <support@acme.example>")

// NewServer reads where mail is handed in and whom it is from. The address is one of
//
//	smtp://user:password@host:587     TLS by STARTTLS, which the server must offer
//	smtps://user:password@host:465    TLS from the first byte
//
// where user and password, percent-encoded, and the port may be left out. The server's certificate is verified. On loopback smtp:// is plain;
// elsewhere it is with ?starttls=off, for a network that nobody else is on, and then without a password. ?starttls=on asks for it on
// loopback too. No error shows the address, which may hold the password.
func NewServer(smtpURL, from string) (*Server, error) {
	u, err := url.Parse(smtpURL)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.Fragment != "" || u.Opaque != "" {
		return nil, errors.New("PO600 it is no address of a mail server; write smtp://user:password@host:587 or smtps://user:password@host:465, with special letters of the password percent-encoded")
	}
	s := &Server{host: u.Hostname(), implicit: u.Scheme == "smtps", user: u.User.Username()}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "465", false: "587"}[s.implicit]
	}
	s.addr = net.JoinHostPort(s.host, port)
	s.password, _ = u.User.Password()
	if err := s.secure(u.RawQuery); err != nil {
		return nil, err
	}
	if s.from, err = address(from); err != nil {
		return nil, ErrSender
	}
	return s, nil
}

// secure reads the options of an address.
func (s *Server) secure(query string) error {
	q, err := url.ParseQuery(query)
	option := q.Get("starttls")
	switch {
	case err != nil, len(q) > 1, len(q) == 1 && option != "on" && option != "off", option != "" && s.implicit:
		return errors.New("PO600 the options of the mail server's address are unknown; there is starttls=on or off, for smtp://")
	case option == "off" && s.user != "" && !loopback(s.host):
		return errors.New("PO600 a password would go to the mail server in plain text; take ?starttls=off out, or the user and the password")
	case !s.implicit:
		s.startTLS = option == "on" || option == "" && !loopback(s.host)
	}
	return nil
}

// Check connects and logs in as for a mail, and sends none. Its error says why no mail could be sent now.
func (s *Server) Check(ctx context.Context) error {
	c, err := s.open(ctx)
	if err != nil {
		return s.unsent(ctx, err)
	}
	c.over = true // none was begun
	c.end()
	return nil
}

// Addr is the server's host and port, for people.
func (s *Server) Addr() string { return s.addr }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
