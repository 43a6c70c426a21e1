package app

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What anybody can send to the probes' address is bounded, and breaks nothing.
func TestProbesAreBounded(t *testing.T) {
	w := newWorldHere(t)
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted")
	r := w.start()
	at := r.says(`"setting":"http.listen","address":"([^"]+)"`)
	for name, c := range map[string]struct {
		request string
		want    string
	}{
		"a header too large": {"GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		"another method":     {"DELETE /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 405"},
		"another path":       {"GET /../../etc/passwd HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 "},
		"no HTTP":            {"\x00\x01\x02\r\n\r\n", "HTTP/1.1 400"},
		"a body":             {fmt.Sprintf("GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", 1<<40), "HTTP/1.1 200"},
		"a page":             {"GET /readyz?verbose=%00%ff HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 "},
	} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, c.request) }() // it may be cut off
		got := make([]byte, len(c.want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
		conn.Close()
	}
	if resp, err := http.Get("http://" + at + "/livez"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %v, %v", resp, err)
	}
	r.stop()
}

// The server has every limit that net/http leaves open.
func TestProbesServer(t *testing.T) {
	w := newWorldHere(t)
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "PAIDONCE_HTTP_DEBUG=127.0.0.1:0")
	c := &call{Process: Process{Environ: w.env, Ledger: w.ledger, Queue: w.queue}, ctx: t.Context()}
	cfg, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := listen(&worker{cfg: cfg, log: logger(cfg, io.Discard), registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	patient := 0
	for s := range p.servers {
		if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes != maxProbe {
			t.Errorf("%+v", s)
		}
		if s.WriteTimeout == 0 {
			patient++ // profiles
		}
	}
	if len(p.servers) != 2 || patient != 1 {
		t.Errorf("%d servers, %d without a limit on writing", len(p.servers), patient)
	}
}
