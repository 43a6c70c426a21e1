// Package smtpsink is a mail server for tests, on a real socket of loopback. It keeps what it took, and fails as it is told: above
// all by taking a mail and saying nothing, which is what a client cannot tell from a mail that was lost.
//
//	sink, err := smtpsink.Start(smtpsink.Options{})
//	defer sink.Close()
//	sink.Script(smtpsink.Drop)      // the next mail is taken, and the connection closed without a reply
//	… send to sink.URL() …
//	mails := sink.Mails()           // must be one
package smtpsink

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Kind is what becomes of one mail.
type Kind string

// The kinds. All but Accept, Drop, Hang and Odd refuse: nothing is kept.
const (
	Accept  Kind = ""          // kept, and said so
	Drop    Kind = "drop"      // kept; the connection is closed without a reply
	Hang    Kind = "hang"      // kept; no reply until Close
	Odd     Kind = "odd"       // kept; the reply is one that no mail gets
	Data4   Kind = "data 4xx"  // read, and refused for now
	Data5   Kind = "data 5xx"  // read, and refused for good
	Rcpt4   Kind = "rcpt 4xx"  // the recipient is refused for now
	Rcpt5   Kind = "rcpt 5xx"  // the recipient is refused for good
	Sender5 Kind = "mail 5xx"  // the sender is refused for good
	CutDATA Kind = "cut data"  // the connection is closed when the mail begins
	Hello4  Kind = "hello 4xx" // the client is turned away when it says who it is
)

// Options change the server. Zero: no TLS, no login.
type Options struct {
	TLS      *tls.Config // offers STARTTLS
	Implicit bool        // TLS from the first byte instead
	User     string      // a login by PLAIN that is asked for before mail; "": none
	Password string
	Listener net.Listener  // nil: a free port of loopback
	Latency  time.Duration // between taking a mail and saying so
}

// Mail is one that the server took.
type Mail struct {
	From string
	To   []string
	Text string // headers and body, as they came
	TLS  bool   // over a connection with TLS
	User string // who logged in
}

// Sink is a running server.
type Sink struct {
	opt    Options
	server *smtp.Server
	listen net.Listener
	done   chan struct{} // closed by Close
	served sync.WaitGroup

	mu     sync.Mutex
	script []Kind
	mails  []Mail
	cut    int // mails that began and never ended
	conns  int
}

// Start serves until Close.
func Start(opt Options) (*Sink, error) {
	s := &Sink{opt: opt, done: make(chan struct{})}
	s.server = smtp.NewServer(smtp.BackendFunc(s.session))
	s.server.Domain, s.server.AllowInsecureAuth = "sink.test", true
	s.server.ErrorLog = discard{}
	if opt.TLS != nil && !opt.Implicit {
		s.server.TLSConfig = opt.TLS
	}
	if s.listen = opt.Listener; s.listen == nil {
		var err error
		if s.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	over := s.listen
	if opt.Implicit {
		over = tls.NewListener(over, opt.TLS)
	}
	s.served.Go(func() { _ = s.server.Serve(over) }) // it ends with Close
	return s, nil
}

// Close ends the server and what hangs.
func (s *Sink) Close() error {
	close(s.done)
	err := s.server.Close()
	s.served.Wait()
	return err
}

// Addr is host and port.
func (s *Sink) Addr() string { return s.listen.Addr().String() }

// URL is the server's address, without a login.
func (s *Sink) URL() string {
	if s.opt.Implicit {
		return "smtps://" + s.Addr()
	}
	return "smtp://" + s.Addr()
}

// Script says what becomes of the next mails, one each; those after them are accepted.
func (s *Sink) Script(kinds ...Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, kinds...)
}

// Mails are those that the server took, in order.
func (s *Sink) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mails)
}

// Cut counts the mails that began and whose end never came.
func (s *Sink) Cut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// Conns counts the sessions: one a connection, two with STARTTLS.
func (s *Sink) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// next is what becomes of the next mail. only: if it is that.
func (s *Sink) next(only ...Kind) Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 || len(only) > 0 && !slices.Contains(only, s.script[0]) {
		return Accept
	}
	k := s.script[0]
	s.script = s.script[1:]
	return k
}

// session begins with the connection's first greeting, and anew with TLS.
func (s *Sink) session(c *smtp.Conn) (smtp.Session, error) {
	s.mu.Lock()
	s.conns++
	s.mu.Unlock()
	if s.next(Hello4) == Hello4 {
		return nil, &smtp.SMTPError{Code: 421, EnhancedCode: smtp.NoEnhancedCode, Message: "too busy"}
	}
	x := &session{sink: s, conn: c}
	if s.opt.User != "" {
		return &closed{x}, nil
	}
	return x, nil
}

// session is one connection.
type session struct {
	sink *Sink
	conn *smtp.Conn
	kind Kind
	mail Mail
}

func refusal(code int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: text}
}

// Mail implements smtp.Session.
func (x *session) Mail(from string, _ *smtp.MailOptions) error {
	x.kind = x.sink.next()
	if x.kind == Sender5 {
		return refusal(550, "no such sender here")
	}
	if x.sink.opt.User != "" && x.mail.User == "" {
		return smtp.ErrAuthRequired
	}
	x.mail.From = from
	return nil
}

// Rcpt implements smtp.Session.
func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	switch x.kind {
	case Rcpt4:
		return refusal(450, "mailbox busy")
	case Rcpt5:
		return refusal(550, "no such mailbox")
	}
	x.mail.To = append(x.mail.To, to)
	return nil
}

// Data implements smtp.Session.
func (x *session) Data(r io.Reader) error {
	if x.kind == CutDATA {
		x.conn.Conn().Close()
	}
	text, err := io.ReadAll(r)
	if err != nil {
		x.sink.mu.Lock()
		defer x.sink.mu.Unlock()
		x.sink.cut++
		return err
	}
	switch x.kind {
	case Data4:
		return refusal(451, "greylisted, try again later")
	case Data5:
		return refusal(554, "no spam here")
	}
	_, x.mail.TLS = x.conn.TLSConnectionState()
	x.mail.Text = string(text)
	x.sink.mu.Lock()
	x.sink.mails = append(x.sink.mails, x.mail)
	x.sink.mu.Unlock()
	time.Sleep(x.sink.opt.Latency)
	switch x.kind {
	case Drop:
		x.conn.Conn().Close()
		return errors.New("dropped")
	case Hang:
		<-x.sink.done
		return errors.New("hung")
	case Odd:
		return refusal(354, "go on")
	}
	return nil
}

// Reset implements smtp.Session.
func (x *session) Reset() { x.mail.From, x.mail.To = "", nil }

// Logout implements smtp.Session.
func (x *session) Logout() error { return nil }

// closed is a session that wants a login.
type closed struct{ *session }

// AuthMechanisms implements smtp.AuthSession.
func (*closed) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements smtp.AuthSession.
func (x *closed) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != x.sink.opt.User || password != x.sink.opt.Password {
			return smtp.ErrAuthFailed
		}
		x.mail.User = user
		return nil
	}), nil
}

// discard keeps what a client's end does to a connection out of the tests' output.
type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}
