package sqs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// closedEarly is a body whose WriteTo behaves as the SDK's does once it closed it.
type closedEarly struct{ *strings.Reader }

func (closedEarly) Close() error                     { return nil }
func (closedEarly) WriteTo(io.Writer) (int64, error) { return 0, io.EOF }

// TestReplyBeforeTheRequestEnds: the SDK closes the body of a request when the reply begins,
// and net/http may look at it once more after that. The reply arrives all the same.
func TestReplyBeforeTheRequestEnds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	t.Cleanup(srv.Close)
	for name, given := range map[string]aws.HTTPClient{"ours": nil, "the user's": srv.Client()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, closedEarly{strings.NewReader("a request")})
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(len("a request"))
		c := &clients{}
		resp, err := c.http(given, time.Minute).Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		c.close()
		if err != nil || string(text) != "a request" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
