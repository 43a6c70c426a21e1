package rabbittest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is the broker's process, its private epmd and their folder.
type node struct {
	script string // rabbitmq-server, the one without the su wrapper
	dir    string
	port   int
	dist   int
	epmd   int
	name   string
	cookie string

	spawn   chan func()    // run on the one thread that owns the children
	janitor io.WriteCloser // kept, or the collector of garbage would close it

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the current process has exited
	out  *bytes.Buffer // what it wrote, for whoever wonders why it died
}

// newNode makes the folder below parent and starts epmd. A node that starts its own epmd
// leaves it behind, so it gets one that belongs to us.
func newNode(parent string) (*node, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "rabbittest-")
	if err != nil {
		return nil, err
	}
	n := &node{script: script, dir: dir, name: "paidonce" + strings.ToLower(rand.Text()[:8]), cookie: rand.Text(), spawn: make(chan func())}
	go n.own()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	n.port, n.dist, n.epmd = ports[0], ports[1], ports[2]
	if err := errors.Join(n.writeFiles(), n.startJanitor(), n.startEpmd()); err != nil {
		return nil, err
	}
	return n, nil
}

// fastDir is a folder in memory if there is one with room: a quorum queue syncs for
// every message, and what a killed process wrote is kept there just as well.
func fastDir() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err == nil && fs.Bavail*uint64(fs.Bsize) > 2<<30 {
		return "/dev/shm"
	}
	return ""
}

// own starts children on one thread that lives as long as the process: the
// parent death signal is sent when the thread that forked ends, not the process.
func (n *node) own() {
	runtime.LockOSThread()
	for f := range n.spawn {
		f()
	}
}

// run starts cmd so that it dies with this process.
func (n *node) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	n.spawn <- func() { started <- cmd.Start() }
	return <-started
}

// startJanitor starts a shell that removes the folder when this process is gone,
// however it went: it waits for the end of a pipe that only we hold open.
func (n *node) startJanitor() error {
	cmd := exec.Command("/bin/sh", "-c",
		`cat >/dev/null; i=0; while [ -e "$0" ] && [ $i -lt 50 ]; do rm -rf "$0" 2>/dev/null; i=$((i+1)); sleep 0.2; done`, n.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if n.janitor, err = cmd.StdinPipe(); err != nil { // never written, never closed
		return err
	}
	return cmd.Start()
}

func (n *node) startEpmd() error {
	epmd, err := findProgram("epmd", "/usr/lib/erlang/bin/epmd")
	if err != nil {
		return err
	}
	cmd := exec.Command(epmd, "-port", fmt.Sprint(n.epmd), "-address", "127.0.0.1")
	cmd.Env = n.env()
	if err := n.run(cmd); err != nil {
		return fmt.Errorf("start epmd: %w", err)
	}
	go cmd.Wait()
	for range 100 { // a node that comes first dies with no_epmd_port
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.epmd)); err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("epmd does not listen")
}

// start runs the broker in its folder and waits until it answers.
func (n *node) start() error {
	cmd := exec.Command(n.script)
	cmd.Env, cmd.Dir = n.env(), n.dir
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := n.run(cmd); err != nil {
		return fmt.Errorf("start %s: %w", n.script, err)
	}
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	n.mu.Lock()
	n.cmd, n.done, n.out = cmd, done, out
	n.mu.Unlock()
	if err := ready(n.port, done); err != nil {
		n.kill()
		return fmt.Errorf("%w; it wrote: %s", err, tail(out.Bytes()))
	}
	return nil
}

// kill ends the broker as a power cut would, and everything in its group.
func (n *node) kill() {
	n.mu.Lock()
	cmd, done := n.cmd, n.done
	n.mu.Unlock()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-done
	os.Remove(filepath.Join(n.dir, "pid"))
}

// signal sends sig to the virtual machine alone.
func (n *node) signal(sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return syscall.Kill(n.cmd.Process.Pid, sig)
}

func (n *node) env() []string {
	d := func(name string) string { return filepath.Join(n.dir, name) }
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"HOME=" + d("home"),
		fmt.Sprintf("ERL_EPMD_PORT=%d", n.epmd), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + n.name + "@localhost",
		"RABBITMQ_MNESIA_BASE=" + d("mnesia"), "RABBITMQ_LOG_BASE=" + d("log"),
		"RABBITMQ_CONFIG_FILE=" + d("rabbitmq"), "RABBITMQ_ADVANCED_CONFIG_FILE=" + d("advanced.config"),
		"RABBITMQ_CONF_ENV_FILE=" + d("env.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + d("enabled_plugins"),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", fmt.Sprintf("RABBITMQ_NODE_PORT=%d", n.port),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", n.dist),
		"RABBITMQ_PID_FILE=" + d("pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
		"NOTIFY_SOCKET=" + d("notify"), // any path: the script then becomes the virtual machine
	}
}

func (n *node) writeFiles() error {
	files := []struct {
		name, text string
		mode       os.FileMode
	}{
		{"home/.erlang.cookie", n.cookie, 0o400},
		{"rabbitmq.conf", fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\nlog.console = false\n"+
			"vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n", n.port), 0o600},
		// An ack timeout is looked at once a tick, by default once a minute.
		{"advanced.config", "[{rabbit,[{channel_tick_interval,1000}]}].\n", 0o600},
		{"enabled_plugins", "[].\n", 0o600},
		{"env.conf", "", 0o600},
	}
	for _, dir := range []string{"home", "mnesia", "log"} {
		if err := os.Mkdir(filepath.Join(n.dir, dir), 0o700); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(n.dir, f.name), []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// findScript finds the rabbitmq-server of the package's library folder. The one
// on the PATH is a wrapper that changes user and writes to the system's log.
func findScript() (string, error) {
	if out, err := exec.Command("dpkg", "-L", "rabbitmq-server").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if f := strings.TrimSpace(line); strings.HasSuffix(f, "/lib/rabbitmq/bin/rabbitmq-server") {
				return f, nil
			}
		}
	}
	return findProgram("", "/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server", "/usr/local/opt/rabbitmq/sbin/rabbitmq-server")
}

// findProgram looks for name on the PATH, then at the paths.
func findProgram(name string, paths ...string) (string, error) {
	if name != "" {
		if f, err := exec.LookPath(name); err == nil {
			return f, nil
		}
	}
	for _, f := range paths {
		if _, err := os.Stat(f); err == nil {
			return f, nil
		}
	}
	return "", fmt.Errorf("found none of %s %v", name, paths)
}

// freePorts returns n ports that were free just now, on loopback.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func tail(b []byte) string { return string(b[max(0, len(b)-2000):]) }
