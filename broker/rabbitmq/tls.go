package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// inTheClear is the URL for the driver, which gets a connection that is encrypted already: below it acks that are
// written together can be one record.
func (s *settings) inTheClear() string {
	if s.uri.Scheme != "amqps" {
		return s.URL
	}
	_, rest, _ := strings.Cut(s.URL, ":")
	return "amqp:" + rest
}

// tls returns a configuration of its own for one connection: Config.TLS, or what the URL's parameters say. nil: no TLS.
func (s *settings) tls() (*tls.Config, error) {
	if s.uri.Scheme != "amqps" {
		return nil, nil
	}
	c := s.TLS.Clone()
	if c == nil {
		c = &tls.Config{ServerName: s.uri.ServerName}
		if err := s.certificates(c); err != nil {
			return nil, err
		}
	}
	if c.ServerName == "" {
		c.ServerName = s.uri.Host
	}
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c, nil
}

// certificates reads the files that the URL names, anew for each connection: they may have been renewed. Without a
// cacertfile the system's roots are trusted, without certfile and keyfile there is no certificate of our own.
func (s *settings) certificates(c *tls.Config) error {
	if name := s.uri.CACertFile; name != "" {
		pem, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cacertfile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("cacertfile %s: it has no certificate that can be read", name)
		}
	}
	if s.uri.CertFile == "" || s.uri.KeyFile == "" {
		return nil
	}
	own, err := tls.LoadX509KeyPair(s.uri.CertFile, s.uri.KeyFile)
	if err != nil {
		return fmt.Errorf("certfile %s and keyfile %s: %w", s.uri.CertFile, s.uri.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{own}
	return nil
}
