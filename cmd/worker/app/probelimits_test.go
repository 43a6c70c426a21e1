package app

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

// slow is a collector that takes as long as a test wants.
type slow struct {
	prometheus.Collector
	begun   chan struct{}
	release chan struct{}
}

func (s slow) Collect(chan<- prometheus.Metric) {
	s.begun <- struct{}{}
	<-s.release
}

// TestScrapesAtATime: who asks for the metrics without pause is told to come again.
func TestScrapesAtATime(t *testing.T) {
	reg, s := prometheus.NewRegistry(), slow{prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}), make(chan struct{}), make(chan struct{})}
	reg.MustRegister(s)
	srv := httptest.NewServer((&probes{w: &worker{registry: reg}}).handler())
	defer srv.Close()
	var all sync.WaitGroup
	for range maxScrapes {
		all.Go(func() {
			if resp, err := http.Get(srv.URL + "/metrics"); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", resp, err)
			}
		})
		<-s.begun
	}
	resp, err := http.Get(srv.URL + "/metrics")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %v, %v", resp, err)
	}
	close(s.release)
	all.Wait()
}

// What is read of a person's file, or of stdin, has an end.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	c := &call{Process: Process{Stdin: endless{}}}
	for _, name := range []string{"-", "/dev/zero"} {
		if _, err := c.read(name); err == nil || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
