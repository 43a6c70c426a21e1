package app

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
)

func TestLinks(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want []string // codes
	}{
		"nothing set":       {nil, nil},
		"this machine":      {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@127.0.0.1/d", "PAIDONCE_BROKER_URL=amqp://u:p@localhost/", "PAIDONCE_PROVIDERS_OPENAI_BASE_URL=http://[::1]:9/"}, nil},
		"a socket":          {[]string{"PAIDONCE_LEDGER_URL=postgres:///d?host=/run/postgresql"}, nil},
		"as it is written":  {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d", "PAIDONCE_BROKER_URL=amqp://u:p@mq/"}, []string{"PO651", "PO651"}},
		"with TLS":          {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d?sslmode=verify-full", "PAIDONCE_BROKER_URL=amqps://u:p@mq/"}, nil},
		"by the driver's":   {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d", "PGSSLMODE=verify-full"}, nil},
		"the URL counts":    {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d?sslmode=disable", "PGSSLMODE=verify-full"}, []string{"PO651"}},
		"believes anybody":  {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d?sslmode=require"}, []string{"PO652"}},
		"a chain, no name":  {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d?sslmode=verify-ca"}, []string{"PO652"}},
		"falls back":        {[]string{"PAIDONCE_LEDGER_URL=postgres://u:p@db/d?sslmode=prefer"}, []string{"PO651"}},
		"gateways":          {[]string{"PAIDONCE_PROVIDERS_OPENAI_BASE_URL=http://gw/v1", "PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL=https://gw", "PAIDONCE_STEPS_SLACK_BASE_URL=http://gw"}, []string{"PO651", "PO651"}},
		"an SQS of its own": {[]string{"PAIDONCE_BROKER_URL=sqs:", "PAIDONCE_BROKER_ENDPOINT=http://sqs:4566"}, []string{"PO651"}},
	} {
		k := &call{Process: Process{Environ: c.env}}
		cfg, _ := config.Load(config.Options{File: "", Environ: c.env, Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()}) // faults of other settings do not matter
		var got []string
		for _, f := range doctor.Findings(doctor.Facts{Links: k.links(cfg)}) {
			if f.Code == "PO651" || f.Code == "PO652" {
				got = append(got, f.Code)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// impostor is a server whose certificate nobody vouches for. It speaks TLS from the first byte, or as Postgres does.
type impostor struct {
	net.Listener
	tried atomic.Int64 // connections
	told  atomic.Int64 // of these, who believed it and went on
}

func newImpostor(t *testing.T) *impostor {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{}
	if i.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	go func() {
		for {
			c, err := i.Accept()
			if err != nil {
				return
			}
			go i.serve(c, cfg)
		}
	}()
	return i
}

// read is a connection of which something was read ahead.
type read struct {
	net.Conn
	io.Reader
}

func (r read) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func (i *impostor) serve(c net.Conn, cfg *tls.Config) {
	defer c.Close()
	i.tried.Add(1)
	ahead := bufio.NewReader(c)
	if first, err := ahead.Peek(8); err == nil && binary.BigEndian.Uint32(first[4:]) == 80877103 { // Postgres asks for TLS
		_, _ = ahead.Discard(8) // they were peeked
		_, _ = c.Write([]byte("S"))
	}
	over := tls.Server(read{c, ahead}, cfg)
	if over.Handshake() != nil {
		return
	}
	if n, _ := over.Read(make([]byte, 1)); n > 0 {
		i.told.Add(1)
	}
}

// TestTLSIsVerified: each client of the worker ends a connection to a server that nobody vouches for before it says anything.
func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		args []string
	}{
		"Postgres":   {[]string{"PAIDONCE_LEDGER_URL=postgres://u:pw@ADDR/d?sslmode=verify-full"}, []string{"doctor"}},
		"RabbitMQ":   {[]string{"PAIDONCE_BROKER_URL=amqps://u:pw@ADDR/"}, []string{"doctor"}},
		"SQS":        {[]string{"PAIDONCE_BROKER_URL=sqs:", "PAIDONCE_BROKER_ENDPOINT=https://ADDR", "PAIDONCE_BROKER_REGION=us-east-1"}, []string{"doctor"}},
		"mail":       {[]string{"PAIDONCE_STEPS_EMAIL_SMTP_URL=smtps://u:pw@ADDR", "PAIDONCE_STEPS_EMAIL_FROM=a@b.example"}, []string{"doctor"}},
		"Slack":      {[]string{"PAIDONCE_STEPS_SLACK_BASE_URL=https://ADDR/", "PAIDONCE_STEPS_SLACK_TOKEN=xoxb-planted"}, []string{"doctor"}},
		"providers":  {[]string{"PAIDONCE_PROVIDERS_OPENAI_BASE_URL=https://ADDR/v1/"}, nil},
		"providers'": {[]string{"PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL=https://ADDR/", `PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: a, provider: anthropic, model: claude-haiku-4-5, timeout: 5s}]`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, i := newWorldHere(t), newImpostor(t)
			w.env = append(w.env, "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted", "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=sk-planted", "PAIDONCE_CONSUMER_LEASE=1s")
			for _, e := range c.env {
				w.env = append(w.env, strings.ReplaceAll(e, "ADDR", i.Addr().String()))
			}
			said := ""
			if c.args != nil {
				o := w.do("", c.args...)
				said = o.stdout + o.stderr
			} else {
				w.must(`{"tenant":"acme","ticket":"1","revision":1,"thread":"x"}`, "submit", "--job", "ticket.summary")
				r := w.start()
				r.says("PO371 nothing was sent")
				r.stop()
				said = r.log.String()
			}
			if i.tried.Load() == 0 || i.told.Load() != 0 || !strings.Contains(said, "certificate") && !strings.Contains(said, "x509") {
				t.Errorf("%d connections, %d believed it\n%s", i.tried.Load(), i.told.Load(), said)
			}
		})
	}
}
