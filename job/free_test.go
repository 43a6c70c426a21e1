package job

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUnguarded: who asks for nothing is read up to a limit, is led nowhere else, and proves who he is.
func TestUnguarded(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("led elsewhere with %v", r.Header) }))
	defer stranger.Close()
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(w, strings.Repeat("x", 1000))
	})
	srv, secure := httptest.NewServer(served), httptest.NewTLSServer(served)
	defer srv.Close()
	defer secure.Close()
	if resp, err := Unguarded().Get(srv.URL + "/away"); err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := Unguarded().Get(secure.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
	for most, want := range map[int64]error{999: errTooLong, 1000: nil} {
		resp, err := (&http.Client{Transport: bounded{most}}).Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !errors.Is(err, want) || want == nil && len(body) != 1000 {
			t.Errorf("at most %d: %d bytes, %v", most, len(body), err)
		}
	}
	if b, ok := Unguarded().Transport.(bounded); !ok || b.most != maxAnswer {
		t.Errorf("the limit is %+v", Unguarded().Transport)
	}
	if new(Attempt).Free() != Unguarded() {
		t.Error("Free is another client")
	}
}
