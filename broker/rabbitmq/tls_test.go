package rabbitmq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	stdnet "net"
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
	addr := terminate(t, b.srv.Addr(), cert)
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
func terminate(t *testing.T, target string, cert tls.Certificate) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
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
