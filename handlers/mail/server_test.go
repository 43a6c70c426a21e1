package mail_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// certificate is one for 127.0.0.1, and who vouches for it.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &tls.Config{Certificates: srv.TLS.Certificates, MinVersion: tls.VersionTLS12}, roots
}

// Real sockets and real TLS: who may be spoken to, how, and with which login. What may not is not sent to at all.
func TestSecurity(t *testing.T) {
	cert, roots := certificate(t)
	const login, other = "worker:p%40ss%20word@", "worker:wrong@"
	for _, c := range []struct {
		name   string
		opt    smtpsink.Options
		login  string
		query  string
		scheme string
		roots  *x509.CertPool
		tls    bool
		err    string // of the step; "": it is done
	}{
		{name: "plain on loopback", scheme: "smtp"},
		{name: "plain with a login on loopback", opt: smtpsink.Options{User: "worker", Password: "p@ss word"}, login: login, scheme: "smtp"},
		{name: "STARTTLS", opt: smtpsink.Options{TLS: cert}, query: "?starttls=on", scheme: "smtp", roots: roots, tls: true},
		{name: "STARTTLS with a login", opt: smtpsink.Options{TLS: cert, User: "worker", Password: "p@ss word"}, login: login, query: "?starttls=on", scheme: "smtp", roots: roots, tls: true},
		{name: "TLS with a login", opt: smtpsink.Options{TLS: cert, Implicit: true, User: "worker", Password: "p@ss word"}, login: login, scheme: "smtps", roots: roots, tls: true},
		{name: "STARTTLS not offered", query: "?starttls=on", scheme: "smtp", roots: roots, err: "PO606"},
		{name: "STARTTLS, unknown certificate", opt: smtpsink.Options{TLS: cert}, query: "?starttls=on", scheme: "smtp", err: "PO604"},
		{name: "TLS, unknown certificate", opt: smtpsink.Options{TLS: cert, Implicit: true}, scheme: "smtps", err: "PO604"},
		{name: "wrong password", opt: smtpsink.Options{TLS: cert, Implicit: true, User: "worker", Password: "p@ss word"}, login: other, scheme: "smtps", roots: roots, err: "535"},
		{name: "no login where one is asked for", opt: smtpsink.Options{User: "worker", Password: "p@ss word"}, scheme: "smtp", err: "502"},
		{name: "a login that nobody asks for", login: login, scheme: "smtp", err: "PO606"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink, err := smtpsink.Start(c.opt)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			w := mortal.New(t)
			s := server(t, nil, c.scheme+"://"+c.login+sink.Addr()+c.query)
			s.Roots = c.roots
			w.Register = func(reg *job.Registry) {
				step := mail.Step("email", s, write)
				step.MaxRuns = 1
				job.RegisterStep(reg, step)
			}
			w.Send("email", noteBody)
			n := w.Start("a", nil)
			j := ended(w)
			w.End(n)
			if c.err != "" {
				if j.State != ledger.Failed || !strings.Contains(j.Error.Text, c.err) || len(j.Attempts) != 0 || len(sink.Mails()) != 0 {
					t.Errorf("the step is %s (%v) after %d attempts, and there are %d mails", j.State, j.Error, len(j.Attempts), len(sink.Mails()))
				}
				if strings.Contains(j.Error.Text, "p@ss") || strings.Contains(j.Error.Text, "wrong") {
					t.Errorf("the error shows the password: %s", j.Error.Text)
				}
				return
			}
			if mails := sink.Mails(); j.State != ledger.Done || len(mails) != 1 || mails[0].TLS != c.tls || mails[0].User != c.opt.User {
				t.Errorf("the step is %s (%v), and there are %+v", j.State, j.Error, mails)
			}
		})
	}
}

// ended waits for the end of the step.
func ended(w *mortal.World) ledger.Job {
	w.Helper()
	for range 2000 {
		if j, ok := w.Job("acme", noteKey); ok && j.State.Terminal() {
			return j
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.Fatal("the step does not end")
	return ledger.Job{}
}

// No error of an address shows a part of it.
func TestNewServer(t *testing.T) {
	for _, c := range []struct{ url, from, err string }{
		{"smtp://mail.example", "support@acme.example", ""},
		{"smtps://user:s3cr3t@mail.example", "Support <support@acme.example>", ""},
		{"smtp://user:s3cr3t@mail.example:2525/", "support@acme.example", ""},
		{"smtp://mail:1025?starttls=off", "support@acme.example", ""},
		{"smtp://user:s3cr3t@127.0.0.1?starttls=off", "support@acme.example", ""},
		{"smtp://user:s3cr3t@mail.example?starttls=off", "support@acme.example", "plain text"},
		{"smtp://user:s3cr3t@mail.example?tls=s3cr3t", "support@acme.example", "PO600"},
		{"smtp://user:s3cr3t@mail.example?starttls=maybe", "support@acme.example", "PO600"},
		{"smtps://user:s3cr3t@mail.example?starttls=off", "support@acme.example", "PO600"},
		{"smtp://user:s3cr3t@mail.example/s3cr3t", "support@acme.example", "PO600"},
		{"smtp://user:s3cr3t@mail.example:s3cr3t", "support@acme.example", "PO600"},
		{"smtp://user:s3cr3t%zz@mail.example", "support@acme.example", "PO600"},
		{"http://user:s3cr3t@mail.example", "support@acme.example", "PO600"},
		{"smtp://", "support@acme.example", "PO600"},
		{"", "support@acme.example", "PO600"},
		{"smtp:mail.example", "support@acme.example", "PO600"},
		{"smtp://mail.example", "", "PO601"},
		{"smtp://mail.example", "support", "PO601"},
		{"smtp://mail.example", "support@acme.example\r\nBcc: eve@evil.example", "PO601"},
	} {
		_, err := mail.NewServer(c.url, c.from)
		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s, %s: %v, want %q", c.url, c.from, err, c.err)
		case err != nil && strings.Contains(err.Error(), "s3cr3t"):
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// The name of a mail follows from its step's key alone, and two keys never share one.
func TestMessageID(t *testing.T) {
	id := func(from, tenant, key string) string {
		s, err := mail.NewServer("smtp://mail.example", from)
		if err != nil {
			t.Fatal(err)
		}
		return s.MessageID(ledger.Key{Tenant: tenant, Text: key})
	}
	a := id("support@acme.example", "acme", "acme:email:1:v1")
	if again := id("Support <support@acme.example>", "acme", "acme:email:1:v1"); a != again || !strings.HasSuffix(a, "@acme.example") {
		t.Errorf("two names of one mail: %s, %s", a, again)
	}
	if quoted := id(`"a@b"@acme.example`, "acme", "acme:email:1:v1"); quoted != a {
		t.Errorf("the sender's local part is in %s", quoted)
	}
	for _, other := range []string{id("support@acme.example", "acme", "acme:email:1:v2"), id("support@acme.example", "acme2", "acme:email:1:v1")} {
		if other == a {
			t.Errorf("two mails have the name %s", a)
		}
	}
}
