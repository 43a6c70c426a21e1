package mail

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"net/textproto"
	"os"
	"slices"
	"strings"

	"github.com/wneessen/go-mail/smtp"
)

// session is one connection to a mail server, for one mail. It speaks by go-mail's SMTP client and not by its sender, which asks
// nobody before the dot and calls a mail failed when a command after its acceptance does.
type session struct {
	conn   net.Conn // below TLS: closing it says no more
	client *smtp.Client
	data   io.WriteCloser
	over   bool // the mail is: whatever the server replied, it did
	stop   func() bool
}

// maxReplies is how much is read of a server in one session, in bytes, TLS included: replies are short.
const maxReplies = 1 << 20

// limited is a connection of which so much is read: a reply without end must not fill the memory.
type limited struct {
	net.Conn
	left int
}

// Read implements net.Conn.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("its replies are longer than %d bytes", maxReplies)
	}
	n, err := l.Conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// lackError is what a server does not offer and must.
type lackError struct{ what string }

func (e *lackError) Error() string { return "it does not offer " + e.what }

// open connects, with TLS and login. The connection ends with ctx.
func (s *Server) open(ctx context.Context) (_ *session, err error) {
	dial := s.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	conn = &limited{Conn: conn, left: maxReplies}
	c := &session{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	if s.implicit {
		over := tls.Client(conn, s.tls())
		if err = over.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		conn = over
	}
	if c.client, err = smtp.NewClient(conn, s.host); err != nil {
		return nil, err
	}
	if err = c.client.Hello(hostname()); err != nil {
		return nil, err
	}
	if s.startTLS {
		if ok, _ := c.client.Extension("STARTTLS"); !ok {
			return nil, &lackError{"STARTTLS"}
		}
		if err = c.client.StartTLS(s.tls()); err != nil {
			return nil, fmt.Errorf("STARTTLS: %w", err)
		}
	}
	return c, s.login(c.client)
}

func (s *Server) tls() *tls.Config {
	return &tls.Config{ServerName: s.host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
}

// login says who sends, by the best way that the server knows. Without TLS it is reached on loopback alone.
func (s *Server) login(c *smtp.Client) error {
	if s.user == "" {
		return nil
	}
	_, offered := c.Extension("AUTH")
	ways := []struct {
		name string
		auth smtp.Auth
	}{
		{"SCRAM-SHA-256", smtp.ScramSHA256Auth(s.user, s.password)},
		{"PLAIN", smtp.PlainAuth("", s.user, s.password, s.host, loopback(s.host))},
		{"LOGIN", smtp.LoginAuth(s.user, s.password, s.host, loopback(s.host))},
		{"CRAM-MD5", smtp.CRAMMD5Auth(s.user, s.password)},
	}
	for _, w := range ways {
		if slices.Contains(strings.Fields(offered), w.name) {
			if err := c.Auth(w.auth); err != nil {
				return fmt.Errorf("login: %w", s.hidden(err))
			}
			return nil
		}
	}
	return &lackError{"a login by SCRAM-SHA-256, PLAIN, LOGIN or CRAM-MD5"}
}

// hidden takes the password out of a server's reply, in the forms in which a login says it.
func (s *Server) hidden(err error) error {
	said, ok := errors.AsType[*textproto.Error](err)
	if !ok || s.password == "" {
		return err
	}
	for _, form := range []string{s.password, base64.StdEncoding.EncodeToString([]byte("\x00" + s.user + "\x00" + s.password)), base64.StdEncoding.EncodeToString([]byte(s.password))} {
		said.Msg = strings.ReplaceAll(said.Msg, form, "(hidden)")
	}
	return err
}

// offer says everything but the dot that ends the mail.
func (c *session) offer(from *netmail.Address, to []*netmail.Address, text []byte) (err error) {
	if err = c.client.Mail(envelope(from)); err != nil {
		return fmt.Errorf("sender %s: %w", from.Address, err)
	}
	for _, t := range to {
		if err = c.client.Rcpt(envelope(t)); err != nil {
			return fmt.Errorf("recipient %s: %w", t.Address, err)
		}
	}
	if c.data, err = c.client.Data(); err != nil {
		return err
	}
	if _, err = c.data.Write(text); err != nil {
		return err
	}
	return c.client.Text.W.Flush() // so that a connection that is gone shows before the mark
}

// dot ends the mail and returns the server's reply.
func (c *session) dot() (reply string, err error) {
	err = c.data.Close()
	_, said := errors.AsType[*textproto.Error](err)
	if c.over = err == nil || said; err != nil {
		return "", err
	}
	if d, ok := c.data.(*smtp.DataCloser); ok {
		reply = strings.ReplaceAll(d.ServerResponse(), "\n", " ")
	}
	return reply, nil
}

// end closes the connection. Unless the mail is over it does so without a word: QUIT, or any other command, would
// end a mail that was begun with the dot. Nobody waits for the reply to QUIT.
func (c *session) end() {
	if c.over {
		_ = c.client.Text.PrintfLine("QUIT")
	}
	c.stop()
	c.conn.Close()
}

// hostname is what the worker calls itself.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "localhost"
	}
	return name
}
