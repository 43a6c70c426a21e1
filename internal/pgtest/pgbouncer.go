package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Bouncer is a PgBouncer of a test's own.
type Bouncer struct {
	URL string // of the database, through it

	owner owner
	bin   string
	dir   string
	proc  *proc
}

// PgBouncer starts a PgBouncer in transaction mode before the database that
// target names, and returns the URL through it. It stops with the test. Its
// pool is small, so that successive transactions of one client land on different
// server connections.
func PgBouncer(t testing.TB, target string) string {
	t.Helper()
	return StartPgBouncer(t, target).URL
}

// StartPgBouncer is PgBouncer with the handles to break it.
func StartPgBouncer(t testing.TB, target string) *Bouncer {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin = "/usr/sbin/pgbouncer"; !exists(bin) {
			t.Fatal("this test needs PgBouncer (Debian, Ubuntu: apt-get install pgbouncer; macOS: brew install pgbouncer)")
		}
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("database URL: %v", err)
	}
	o, err := findOwner()
	if err != nil {
		fatal(t, err)
	}
	for range 3 {
		var b *Bouncer
		if b, err = bouncer(o, bin, *u); err == nil {
			t.Cleanup(func() { b.proc.stop(false) })
			return b
		}
	}
	t.Fatalf("start PgBouncer: %v", err)
	return nil
}

// Stop ends it at once, with all its connections.
func (b *Bouncer) Stop(t testing.TB) {
	t.Helper()
	b.proc.stop(true)
}

// Restart starts a stopped one again, on the same port.
func (b *Bouncer) Restart(t testing.TB) {
	t.Helper()
	if err := b.run(); err != nil {
		t.Fatalf("restart PgBouncer: %v", err)
	}
}

func (b *Bouncer) run() error {
	p, err := b.owner.start(b.dir, "TERM", b.bin, filepath.Join(b.dir, iniFile))
	if err != nil {
		return err
	}
	b.proc = p
	return nil
}

const iniFile = "pgbouncer.ini"

func bouncer(o owner, bin string, u url.URL) (*Bouncer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := o.dir("paidonce-pgbouncer-*")
	if err != nil {
		return nil, err
	}
	upstream := fmt.Sprintf("host=%s port=%s user=%s", u.Hostname(), u.Port(), u.User.Username())
	if password, ok := u.User.Password(); ok {
		upstream += " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	conf := fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
server_login_retry = 1
`, upstream, port)
	if err := os.WriteFile(filepath.Join(dir, iniFile), []byte(conf), 0o644); err != nil {
		return nil, err
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	b := &Bouncer{URL: u.String(), owner: o, bin: bin, dir: dir}
	if err := b.run(); err != nil {
		return nil, err
	}
	if err := answers(b.URL); err != nil {
		err = fmt.Errorf("%w\n%s", err, logTail(dir))
		b.proc.stop(false)
		return nil, err
	}
	return b, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
