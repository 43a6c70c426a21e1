package mail_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// cutter is a mail server whose first connection ends after so many bytes, of the client's or of its reply to the dot.
type cutter struct {
	after  int    // bytes that it reads of the first connection; 0: all
	reply  string // to the first dot; "": the usual
	refuse bool   // and that reply means no

	mu    sync.Mutex
	conns int
	read  int // bytes of the first connection
	took  int // mails
}

func (c *cutter) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.conns++
		first := c.conns == 1
		c.mu.Unlock()
		go c.session(conn, first)
	}
}

func (c *cutter) session(conn net.Conn, first bool) {
	defer conn.Close()
	var from io.Reader = conn
	if first && c.after > 0 {
		from = io.LimitReader(conn, int64(c.after))
	}
	r := bufio.NewReader(from)
	say := func(s string) { io.WriteString(conn, s) }
	say("220 hello\r\n")
	data := false
	for {
		line, err := r.ReadString('\n')
		if first {
			c.mu.Lock()
			c.read += len(line)
			c.mu.Unlock()
		}
		switch {
		case err != nil:
			return
		case data && line == ".\r\n":
			data = false
			reply := "250 2.0.0 Ok\r\n"
			c.mu.Lock()
			if first && c.reply != "" {
				reply = c.reply
			}
			if !first || !c.refuse {
				c.took++
			}
			c.mu.Unlock()
			say(reply)
			if first && c.reply != "" {
				return
			}
		case data:
		case strings.HasPrefix(line, "EHLO"):
			say("250-there\r\n250 8BITMIME\r\n")
		case strings.HasPrefix(line, "DATA"):
			data = true
			say("354 go\r\n")
		case strings.HasPrefix(line, "QUIT"):
			return
		default:
			say("250 ok\r\n")
		}
	}
}

// cut sends one mail, with a worker that has hours for it, and checks that it was not taken twice, and is not called otherwise than it was.
func (c *cutter) cut(t *testing.T, name string) (read int) {
	t.Helper()
	mortal.Bubble(t, func(w *mortal.World) {
		l := w.Net.Listen("127.0.0.1:25")
		go c.serve(l)
		w.Register = func(reg *job.Registry) {
			job.RegisterStep(reg, mail.Step("email", server(t, w, "smtp://127.0.0.1:25"), write))
		}
		w.Send("email", noteBody)
		w.Idle(6 * time.Hour)
		j, _ := w.Job("acme", noteKey)
		c.mu.Lock()
		defer c.mu.Unlock()
		if ok := j.State == ledger.Done && c.took == 1 || j.State == ledger.Unknown && c.took <= 1 || j.State == ledger.Failed && c.took == 0; !ok {
			t.Errorf("%s: the step is %s (%v) after %d attempts, and the server took %d mails", name, j.State, j.Error, len(j.Attempts), c.took)
		}
		read = c.read
		l.Close()
	})
	return read
}

// The connection is cut at every byte of the end, and at some before it; and so is every reply to the dot.
func TestCutAtEveryByte(t *testing.T) {
	all := (&cutter{}).cut(t, "whole")
	for n := 1; n <= all; n++ {
		if n < all-12 && n%97 != 0 {
			continue
		}
		(&cutter{after: n}).cut(t, fmt.Sprintf("%d of %d bytes", n, all))
	}
	for _, r := range []struct {
		text   string
		refuse bool
	}{{"250 2.0.0 Ok\r\n", false}, {"250-2.0.0 Ok\r\n250 as 4F\r\n", false}, {"451 4.3.0 no\r\n", true}, {"550-5.1.1 no\r\n550 no\r\n", true},
		{"251 odd\r\n", false}, {"299 odd\r\n", false}, {"354 odd\r\n", false}, {"999 odd\r\n", false}, {"\r\n", false}, {"x\r\n250 ok\r\n", false}} {
		for n := 1; n <= len(r.text); n++ {
			(&cutter{reply: r.text[:n], refuse: r.refuse}).cut(t, fmt.Sprintf("reply %q", r.text[:n]))
		}
	}
}
