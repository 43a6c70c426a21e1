package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

// probes serves /livez, /readyz and /metrics, and profiles on a listener of their own.
type probes struct {
	w       *worker
	servers map[*http.Server]net.Listener
	ticked  atomic.Int64 // when the consumer last answered, in Unix nanoseconds
}

const (
	checkTimeout = 2 * time.Second
	tickEvery    = time.Second
	tickLimit    = 10 * time.Second // without a tick the process hangs
	maxProbe     = 16 << 10         // bytes of a request's header; a body is not read
	maxScrapes   = 4                // of the metrics at a time; more are told to come again
)

// listen takes the addresses; serve answers on them.
func listen(w *worker) (*probes, error) {
	p := &probes{w: w, servers: map[*http.Server]net.Listener{}}
	p.ticked.Store(time.Now().UnixNano())
	for _, s := range []struct {
		path, addr string
		handler    http.Handler
		patience   time.Duration // with who reads an answer; 0: as long as it takes
	}{
		{"http.listen", w.cfg.HTTP.Listen, p.handler(), 30 * time.Second},
		{"http.debug", w.cfg.HTTP.Debug, profiles(), 0}, // a profile takes as long as it is asked to
	} {
		if s.addr == "" {
			continue
		}
		l, err := net.Listen("tcp", s.addr)
		if err != nil {
			p.close()
			return nil, listenFault(w.cfg, s.path, s.addr, err)
		}
		w.log.Info("listening", "setting", s.path, "address", l.Addr().String())
		p.servers[&http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: s.patience, IdleTimeout: time.Minute, MaxHeaderBytes: maxProbe}] = l
	}
	return p, nil
}

func listenFault(cfg *config.Config, path, addr string, err error) error {
	return fmt.Errorf("PO511 %s %s (%s): %w; free the port or set another, or \"\" in the file for none", path, addr, cfg.Source(path), err)
}

// serve answers until ctx ends.
func (p *probes) serve(ctx context.Context) {
	var all sync.WaitGroup
	for s, l := range p.servers {
		all.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				p.w.log.Error("probes are not served any more", "error", err)
			}
		})
	}
	for ctx.Err() == nil {
		p.w.consumer.Status() // hangs when the consumer does
		p.ticked.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
		case <-time.After(tickEvery):
		}
	}
	p.close()
	all.Wait()
}

func (p *probes) close() {
	for s, l := range p.servers {
		_ = s.Close() // nobody is served any more; there is nothing to lose
		_ = l.Close() // closed by Serve, unless it never ran
	}
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.w.registry, promhttp.HandlerOpts{Registry: p.w.registry, MaxRequestsInFlight: maxScrapes}))
	return mux
}

// livez says whether the process is stuck. It asks nothing outside: a restart cures no
// database.
func (p *probes) livez(w http.ResponseWriter, _ *http.Request) {
	if since := time.Since(time.Unix(0, p.ticked.Load())); since > tickLimit {
		http.Error(w, fmt.Sprintf("no tick for %s", since.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// check is one answer of /readyz?verbose.
type check struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// readyz says whether the worker can take work: ledger, schema, lease, broker, and no
// drain. With ?verbose it says which of them it lacks, in JSON.
func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	checks := p.checks(r.Context())
	ready := true
	for _, c := range checks {
		ready = ready && c.OK
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	if !r.URL.Query().Has("verbose") {
		w.WriteHeader(status)
		fmt.Fprintln(w, map[bool]string{true: "ready", false: "not ready; ?verbose says why"}[ready])
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"ready": ready, "checks": checks}) // the prober may have left
}

func (p *probes) checks(ctx context.Context) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	say := func(err error) check {
		if err == nil {
			return check{OK: true}
		}
		return check{Error: p.w.cfg.Scrub(err.Error())}
	}
	ping, schema := p.w.store.Ping(ctx), error(nil)
	if errors.Is(ping, ledger.ErrSchema) {
		ping, schema = nil, ping
	} else if ping != nil {
		schema = errors.New("not known while the ledger does not answer")
	}
	status := p.w.consumer.Status()
	joined, draining := error(nil), error(nil)
	if !status.Joined {
		joined = errors.New("the ledger does not count on this worker: it has not joined, or its lease is over")
	}
	if status.Draining {
		draining = fmt.Errorf("draining; %d in hand", status.Running)
	}
	return map[string]check{"ledger": say(ping), "schema": say(schema), "lease": say(joined),
		"broker": say(p.w.queue.ready()), "not_draining": say(draining)}
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// Run asks the worker of the same configuration how it is.
func (h healthCommand) Run(c *call) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(cfg.HTTP.Listen)
	if err != nil {
		return usagef("PO514 http.listen (%s) is empty: there is nobody to ask", cfg.Source("http.listen"))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere, here too
	}
	url := "http://" + net.JoinHostPort(host, port) + map[bool]string{true: "/readyz", false: "/livez"}[h.Ready]
	ctx, cancel := context.WithTimeout(c.ctx, 2*checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("PO514 asking %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("PO514 the worker does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("PO514 %s answers %s", url, resp.Status)
	}
	return nil
}
