package job

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

func TestCodec(t *testing.T) {
	h := http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}, "Openai-Processing-Ms": {"12"}, "X-Multi": {"a", "b"},
		"Set-Cookie": {"s=1"}, "Connection": {"close"}, "Transfer-Encoding": {"chunked"}, "Content-Length": {"3"},
		"Www-Authenticate": {"Basic"}, "X-Session-Token": {"t"}, "X-Api-Key": {"k"}, "X-Should-Retry": {"true"},
	}
	saved := encodeResponse(200, h, []byte(`{"id":"x"}`))
	golden(t, "response.http", saved.Body)
	resp, err := decodeResponse(saved, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.ContentLength != 10 || resp.Header.Get("X-Request-Id") != "req_1" || len(resp.Header["X-Multi"]) != 2 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d, %d bytes, %v", resp.StatusCode, resp.ContentLength, resp.Header)
	}
}

// FuzzCodec: any answer comes back as it was; any damaged row is an error or an answer,
// never a panic.
func FuzzCodec(f *testing.F) {
	f.Add(200, "X-A", "b", []byte("body"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"))
	f.Add(201, "Transfer-Encoding", "chunked", []byte("\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, status int, name, value string, body, row []byte) {
		if resp, err := decodeResponse(&ledger.Response{Codec: codecHTTP, Body: row}, nil); err == nil {
			io.Copy(io.Discard, resp.Body)
		}
		if status < 200 || status > 299 || status == 204 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || name == "" {
			return // no response of net/http's is like this
		}
		h := http.Header{}
		h.Set(name, value)
		resp, err := decodeResponse(encodeResponse(status, h, body), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || !bytes.Equal(got, body) {
			t.Fatalf("%d %q, %v; want %d %q", resp.StatusCode, got, err, status, body)
		}
	})
}
