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

// PgBouncer starts a PgBouncer in transaction mode before the database that
// target names, and returns the URL through it. It stops with the test. Its
// pool is small, so that successive transactions of one client land on different
// server connections.
func PgBouncer(t testing.TB, target string) string {
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
		var through string
		if through, err = bouncer(t, o, bin, *u); err == nil {
			return through
		}
	}
	t.Fatalf("start PgBouncer: %v", err)
	return ""
}

func bouncer(t testing.TB, o owner, bin string, u url.URL) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	dir, err := o.dir("paidonce-pgbouncer-*")
	if err != nil {
		return "", err
	}
	upstream := fmt.Sprintf("host=%s port=%s user=%s", u.Hostname(), u.Port(), u.User.Username())
	if password, ok := u.User.Password(); ok {
		upstream += " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	ini := filepath.Join(dir, "pgbouncer.ini")
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
`, upstream, port)
	if err := os.WriteFile(ini, []byte(conf), 0o644); err != nil {
		return "", err
	}
	p, err := o.start(dir, "TERM", bin, ini)
	if err != nil {
		return "", err
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	if err := answers(u.String()); err != nil {
		err = fmt.Errorf("%w\n%s", err, logTail(dir))
		p.stop(false)
		return "", err
	}
	t.Cleanup(func() { p.stop(false) })
	return u.String(), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
