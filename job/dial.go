package job

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dialer opens the connections of guarded requests, up to where application
// bytes begin.
type dialer struct {
	base    *http.Transport
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	dialTLS func(ctx context.Context, network, addr string) (net.Conn, error) // nil: dial and shake hands
	proxy   *url.URL                                                          // nil: none
}

// diallingKey finds in a dialer's context the attempt that it connects for.
type diallingKey struct{}

// DialsFor is the Attempt.ID of the attempt that the dialer of RunConfig.Wire is asked to connect for, by the context that it is
// given; "": for none. A request need not name its attempt, and several of one handler may be on their way.
func DialsFor(ctx context.Context) string {
	a, ok := ctx.Value(diallingKey{}).(*Attempt)
	if !ok {
		return ""
	}
	return a.ID()
}

func (a *Attempt) dialling(ctx context.Context) context.Context {
	return context.WithValue(ctx, diallingKey{}, a)
}

// defaults takes over the base's older ways to dial.
func (d *dialer) defaults() {
	//lint:ignore SA1019 an old base may have nothing else
	if old := d.base.Dial; d.dial == nil && old != nil {
		d.dial = func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	if d.dial == nil {
		d.dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	}
	//lint:ignore SA1019 as above
	if old := d.base.DialTLS; d.dialTLS == nil && old != nil {
		d.dialTLS = func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
}

// secure returns a connection to addr whose TLS handshake is over, so that a
// handshake that fails proves that nothing was sent.
func (d *dialer) secure(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.proxy == nil && d.dialTLS != nil {
		return d.dialTLS(ctx, network, addr)
	}
	if d.proxy == nil {
		c, err := d.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return d.handshake(ctx, c, addr)
	}
	c, err := d.tunnel(ctx, network, addr)
	if err != nil {
		return nil, &stageError{"proxy", err}
	}
	return d.handshake(ctx, c, addr)
}

func (d *dialer) handshake(ctx context.Context, c net.Conn, addr string) (net.Conn, error) {
	cfg := &tls.Config{}
	if d.base.TLSClientConfig != nil {
		cfg = d.base.TLSClientConfig.Clone()
	}
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
	cfg.NextProtos = []string{"http/1.1"}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		cfg.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.base.TLSHandshakeTimeout, 30*time.Second))
	defer cancel()
	tc := tls.Client(c, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, &stageError{"tls", err}
	}
	return tc, nil
}

// hostPort is the address that a URL names.
func hostPort(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// hop returns a connection to the proxy.
func (d *dialer) hop(ctx context.Context, network string) (net.Conn, error) {
	addr := hostPort(d.proxy)
	c, err := d.dial(ctx, network, addr)
	if err != nil || d.proxy.Scheme != "https" {
		return c, err
	}
	return d.handshake(ctx, c, addr)
}

// tunnel asks the proxy for a connection to addr.
func (d *dialer) tunnel(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.hop(ctx, network)
	if err != nil {
		return nil, err
	}
	if err := d.connect(ctx, c, addr); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

const connectTimeout = time.Minute

func (d *dialer) connect(ctx context.Context, c net.Conn, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) // ends the reads and writes below
	defer stop()
	h, err := d.connectHeader(ctx, addr)
	if err != nil {
		return err
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: h}
	if err := req.Write(c); err != nil {
		return fmt.Errorf("asking proxy %s for %s: %w", d.proxy.Host, addr, err)
	}
	br := bufio.NewReader(io.LimitReader(c, 64<<10))
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return fmt.Errorf("asking proxy %s for %s: %w", d.proxy.Host, addr, err)
	}
	if f := d.base.OnProxyConnectResponse; f != nil {
		if err := f(ctx, d.proxy, req, resp); err != nil {
			return err
		}
	}
	if resp.StatusCode != http.StatusOK || br.Buffered() > 0 {
		return fmt.Errorf("proxy %s answered %s to a tunnel to %s", d.proxy.Host, resp.Status, addr)
	}
	if !stop() { // the deadline may be set already
		return context.Cause(ctx)
	}
	return nil
}

func (d *dialer) connectHeader(ctx context.Context, addr string) (http.Header, error) {
	h := d.base.ProxyConnectHeader.Clone()
	if get := d.base.GetProxyConnectHeader; get != nil {
		var err error
		if h, err = get(ctx, d.proxy, addr); err != nil {
			return nil, err
		}
		h = h.Clone()
	}
	if h == nil {
		h = http.Header{}
	}
	d.authorize(h)
	return h, nil
}

// authorize adds who asks the proxy, unless h says so already.
func (d *dialer) authorize(h http.Header) {
	if u := d.proxy.User; u != nil && h.Get("Proxy-Authorization") == "" {
		pw, _ := u.Password()
		h.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+pw)))
	}
}
