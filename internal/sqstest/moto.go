package sqstest

import (
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// motoVersion is the one whose behaviour is known; tools/need.sh installs it.
const motoVersion = "5.2.1"

// startLimit bounds a start: idle it takes a second, on a loaded machine ten.
const startLimit = 60 * time.Second

// findMoto finds moto_server: where PAIDONCE_MOTO_SERVER says, on the PATH, or where
// tools/need.sh installs it.
func findMoto() (string, error) {
	if program := os.Getenv("PAIDONCE_MOTO_SERVER"); program != "" {
		return exec.LookPath(program)
	}
	program, err := exec.LookPath("moto_server")
	if err == nil {
		return program, nil
	}
	if cache, cerr := os.UserCacheDir(); cerr == nil {
		installed := filepath.Join(cache, "paidonce", "moto-"+motoVersion, "bin", "moto_server")
		if _, serr := os.Stat(installed); serr == nil {
			return installed, nil
		}
	}
	return "", err
}

// watch runs a server beside a reader of the standard input. That ends whenever the
// test process goes away, however it does, and the reader then ends the server. (A
// parent-death signal is tied to the thread that forked, which Go ends when it likes.)
const watch = `exec 3<&0
"$@" </dev/null 3<&- & p=$!
{ read -r _ <&3; kill "$p"; } 2>/dev/null & r=$!
wait "$p"; rc=$?
kill "$r" 2>/dev/null
exit "$rc"`

// sitecustomize repairs what moto does to tests that poll; the file says what.
//
//go:embed sitecustomize.py
var sitecustomize []byte

// moto is a moto_server process.
type moto struct {
	port  int
	stdin io.Closer // its end is the server's
	ended chan struct{}
	log   tail
}

// startMoto starts a server that loads its repairs from the folder dir, for as long as
// it starts.
func startMoto(program, dir string) (*moto, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), sitecustomize, 0o600); err != nil {
		return nil, fmt.Errorf("write what moto loads: %w", err)
	}
	m := &moto{port: port, ended: make(chan struct{})}
	cmd := exec.Command("sh", "-c", watch, "watch", program, "-H", "127.0.0.1", "-p", strconv.Itoa(port))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir+":"+os.Getenv("PYTHONPATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C stops the test, and that the server
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	if m.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		err := cmd.Wait()
		fmt.Fprintf(&m.log, "(ended: %v)\n", err)
		close(m.ended)
	}()
	return m, nil
}

func (m *moto) stop() {
	m.stdin.Close()
	<-m.ended
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	w.b = w.b[max(0, len(w.b)-4000):]
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}
