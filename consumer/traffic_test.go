package consumer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// overloaded is a provider behind a pipe, so that it fits into a bubble: it refuses until a moment.
func overloaded(until time.Time, asked *atomic.Int64) *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
				return
			}
			asked.Add(1)
			status, more, body := "200 OK", "", `{"id":"resp_1","object":"response","status":"completed","output":[]}`
			if time.Now().Before(until) {
				status, more, body = "429 Too Many Requests", "Retry-After: 60\r\n", `{"error":{"type":"rate_limit_error"}}`
			}
			fmt.Fprintf(theirs, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), more, body)
		}()
		return ours, nil
	}}
}

// While a provider is overloaded one job at a time asks it, and the runs of the others, which send nothing, do not count.
func TestRestingRoute(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0].Provider = "openai"
		r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider/"+in.Doc, strings.NewReader("{}"))
			if err != nil {
				return "", err
			}
			resp, err := a.HTTP().Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 {
				return "", errors.New(string(b))
			}
			return "answer to " + in.Doc, err
		}
		var asked atomic.Int64
		wire := overloaded(time.Now().Add(30*time.Minute), &asked)
		docs := []string{"1", "2", "3", "4"}
		r.send(docs...)
		a := r.start("a", func(c *consumer.Config) { c.Wire, c.MaxRuns, c.Workers = wire, 50, 1 })
		time.Sleep(2 * time.Hour)
		r.end(a)
		refused := 0
		for _, d := range docs {
			j := r.job(d)
			if j.State != ledger.Done || j.Runs != len(j.Attempts) {
				t.Errorf("job %s is %s after %d runs with %d attempts", d, j.State, j.Runs, len(j.Attempts))
			}
			refused += len(j.Attempts) - 1
		}
		if n := int(asked.Load()); n != refused+len(docs) || refused < 25 || refused > 31 {
			t.Errorf("asked %d times in half an hour of refusals, %d of them in vain; one a minute is right", n, refused)
		}
		r.queue(memory.Depth{})
	})
}
