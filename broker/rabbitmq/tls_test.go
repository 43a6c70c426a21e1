package rabbitmq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	stdnet "net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
)

// TestTLS connects over amqps:// to the broker behind a TLS end of our own, with a
// certificate that only Config.TLS trusts.
func TestTLS(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cert, roots := selfSigned(t)
	addr := terminate(t, b.srv.Addr(), &tls.Config{Certificates: []tls.Certificate{cert}})
	secure := func(c *rabbitmq.Config) {
		c.URL = strings.Replace(strings.Replace(b.url, b.srv.Addr(), addr, 1), "amqp://", "amqps://", 1)
	}
	mine := &tls.Config{RootCAs: roots}
	r := b.open(secure, func(c *rabbitmq.Config) { c.TLS = mine })
	b.worksAgain(r, "encrypted")
	b.cutBoth(r)
	b.worksAgain(r, "encrypted again")
	if mine.ServerName != "" || mine.MinVersion != 0 {
		t.Errorf("the caller's configuration was written into: %q, %d", mine.ServerName, mine.MinVersion)
	}
	stranger := b.open(secure)
	if s := stranger.State(); s.Connected || !strings.Contains(s.LastError, "certificate") {
		t.Errorf("a certificate that nobody trusts: %+v", s)
	}
	plain := b.open(func(c *rabbitmq.Config) { c.URL = strings.Replace(b.url, b.srv.Addr(), addr, 1) })
	if plain.State().Connected {
		t.Error("connected in the clear to a TLS port")
	}
}

// TestTLSByURL trusts and presents the certificates that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cert, roots := selfSigned(t)
	addr := terminate(t, b.srv.Addr(), &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots})
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, der []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	params := url.Values{"cacertfile": {file("ca", "CERTIFICATE", cert.Certificate[0])}, "certfile": {file("cert", "CERTIFICATE", cert.Certificate[0])},
		"keyfile": {file("key", "PRIVATE KEY", key)}}
	open := func(without string, instead ...string) *rabbitmq.Broker {
		q := maps.Clone(params)
		if q[without] = instead; len(instead) == 0 {
			delete(q, without)
		}
		return b.open(func(c *rabbitmq.Config) {
			c.URL = strings.Replace(strings.Replace(b.url, b.srv.Addr(), addr, 1), "amqp://", "amqps://", 1) + "?" + q.Encode()
		})
	}
	b.worksAgain(open(""), "by the URL's certificates")
	b.worksAgain(open("server_name_indication", "127.0.0.1"), "by the URL's server name")
	for _, c := range []struct {
		what, without string
		instead       []string
		says          string
	}{
		{what: "no CA", without: "cacertfile", says: "unknown authority"},
		{what: "a CA file that is not there", without: "cacertfile", instead: []string{dir + "/nothing"}, says: "open " + dir},
		{what: "a CA file of something else", without: "cacertfile", instead: params["keyfile"], says: "unknown authority"},
		{what: "a key that is none", without: "keyfile", instead: params["certfile"], says: "client certificate"},
		{what: "no certificate of its own", without: "certfile", says: "certificate"},
		{what: "another server's name", without: "server_name_indication", instead: []string{"elsewhere"}, says: "elsewhere"},
	} {
		r := open(c.without, c.instead...)
		// A server refuses a client's certificate when the handshake is over. If the driver writes just then, it says at
		// that try only that the connection is not open.
		b.eventually(c.what+" is said", func() bool { return strings.Contains(r.State().LastError, c.says) })
		if s := r.State(); s.Connected {
			t.Errorf("%s: connected: %+v", c.what, s)
		}
	}
}

// selfSigned makes a certificate for 127.0.0.1 and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test broker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []stdnet.IP{stdnet.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// terminate listens with TLS and passes the bytes on to target.
func terminate(t *testing.T, target string, conf *tls.Config) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed with the test
			}
			s, err := stdnet.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			go func() { io.Copy(s, c); s.Close() }()
			go func() { io.Copy(c, s); c.Close() }()
		}
	}()
	return ln.Addr().String()
}
