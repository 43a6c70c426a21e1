package webhook_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/mortal"
)

// giving is a server that answers the first request of each connection, and closes the connection when it has read another.
type giving struct {
	atomic.Int64
	url string
}

type nth struct{}

func flaky(t *testing.T) *giving {
	g := new(giving)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.Add(1)
		io.Copy(io.Discard, r.Body)
		if r.Context().Value(nth{}).(*atomic.Int64).Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, nth{}, new(atomic.Int64))
	}
	srv.Start()
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// ended waits for the end of a step.
func ended(w *mortal.World, key string) {
	w.Helper()
	for range 2000 {
		if j, ok := w.Job("acme", key); ok && j.State.Terminal() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.Fatalf("%s does not end", key)
}
