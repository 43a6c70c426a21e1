package mail_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/paidonce/paidonce/handlers/mail"
)

// checkAt logs in at a server that says what session makes it say.
func checkAt(t *testing.T, session func(net.Conn, *bufio.Reader)) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			session(c, bufio.NewReader(c))
			c.Close()
		}
	}()
	s, err := mail.NewServer("smtp://worker:pw-planted@"+l.Addr().String(), "a@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	return s.Check(t.Context())
}

// A server that never ends its reply is read no further than replies go.
func TestRepliesAreBounded(t *testing.T) {
	for name, line := range map[string]string{"lines": "220-" + strings.Repeat("x", 500) + "\r\n", "one line": strings.Repeat("x", 4096)} {
		var sent atomic.Int64
		err := checkAt(t, func(c net.Conn, _ *bufio.Reader) {
			for sent.Load() < 64<<20 {
				n, err := io.WriteString(c, line)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), "replies are longer than") || sent.Load() >= 64<<20 {
			t.Errorf("%s: %v, %d bytes were taken", name, err, sent.Load())
		}
	}
}

// A server that repeats a login in its refusal puts the password into no error.
func TestLoginIsHidden(t *testing.T) {
	for _, way := range []string{"PLAIN", "LOGIN"} {
		err := checkAt(t, func(c net.Conn, r *bufio.Reader) {
			fmt.Fprint(c, "220 hello\r\n")
			said := ""
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				line = strings.TrimSpace(line)
				switch word, _, _ := strings.Cut(line, " "); {
				case word == "EHLO":
					fmt.Fprintf(c, "250-here\r\n250 AUTH %s\r\n", way)
				case word == "AUTH" && way == "PLAIN":
					fmt.Fprintf(c, "535 not %s\r\n", line)
				case word == "AUTH":
					fmt.Fprint(c, "334 VXNlcm5hbWU6\r\n")
				case said == "":
					said = line
					fmt.Fprint(c, "334 UGFzc3dvcmQ6\r\n")
				default:
					fmt.Fprintf(c, "535 not %s by %s\r\n", said, line)
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), "(hidden)") || strings.Contains(err.Error(), "cHctcGxhbnRlZA") || strings.Contains(err.Error(), "AHdvcmtlcg") {
			t.Errorf("%s: %v", way, err)
		}
	}
}
