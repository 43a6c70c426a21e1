package pgtest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// watch runs a server beside a shell that waits for its standard input to end:
// it does whenever the test process goes away, however that happens, and the shell
// then stops the server and removes its directory. (A parent-death signal is tied
// to the thread that forked, which Go ends when it likes.) A line on the standard
// input keeps the directory.
const watch = `dir=$1 sig=$2; shift 2
"$@" >>"$dir/log" 2>&1 </dev/null & p=$!
read -r keep
kill -s "$sig" $p 2>/dev/null; wait $p
[ -n "$keep" ] || rm -rf "$dir"`

// proc is a server process with its watcher.
type proc struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (o owner) start(dir, signal string, argv ...string) (*proc, error) {
	cmd := o.command("sh", append([]string{"-c", watch, "watch", dir, signal}, argv...)...)
	cmd.SysProcAttr.Setpgid = true // Ctrl-C stops the test; the watcher then stops the server
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return &proc{cmd, stdin}, nil
}

// stop ends the server by its signal and waits for it. The directory stays if keep.
func (p *proc) stop(keep bool) {
	if keep {
		io.WriteString(p.stdin, "keep\n")
	}
	p.stdin.Close()
	p.cmd.Wait()
}

// owner is the account that servers run as: they refuse to run as root.
type owner struct{ cred *syscall.Credential }

func findOwner() (owner, error) {
	if os.Getuid() != 0 {
		return owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil {
			return owner{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return owner{}, fmt.Errorf("running as root, which Postgres refuses, and there is no account postgres or nobody to run it as")
}

func (o owner) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.cred}
	return cmd
}

// dir makes a private directory that the owner can use.
func (o owner) dir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil && o.cred != nil {
		err = os.Chown(dir, int(o.cred.Uid), int(o.cred.Gid))
	}
	return dir, err
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// logTail is what a server said last, for the message of a failure.
func logTail(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// fatal ends the test with what to install.
func fatal(t testing.TB, err error) {
	t.Helper()
	t.Fatalf("this test needs a Postgres server: %v\n"+
		"Install one (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql), or name a running one,\n"+
		"whose user may create databases: PAIDONCE_TEST_POSTGRES=postgres://user:password@host/postgres", err)
}
