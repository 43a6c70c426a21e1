// Package pgtest gives tests a real Postgres: one throwaway server for the test
// process, and a database of its own for each test.
//
//	func TestX(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), pgtest.URL(t))
//
// With PAIDONCE_TEST_POSTGRES set to the URL of a running server (its user may
// create databases) that one is used instead. Servers listen on loopback, on free
// ports, and end with the test process, also when it is killed.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a Postgres server of a test's own, for faults that others must not
// feel.
type Server struct {
	owner    owner
	bin      string // directory of the programs
	dir      string // log, and data/ below it
	port     int
	proc     *proc
	settings []string // of the server, name=value
	initdb   []string // further arguments
	disk     *disk    // nil: as it is
}

var shared struct {
	once   sync.Once
	server *Server // kept: its watcher's input would be closed with the last reference
	url    string
	err    error
}

// URL returns the URL of a fresh, empty database on the process's server. It is
// dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return database(t, server(t), "template0")
}

var templates struct {
	sync.Mutex
	ready map[string]string // name to database
}

// Copy returns the URL of a fresh copy of a database that prepare fills, once per
// process and name: cheaper than preparing each. prepare must close its
// connections. The copy is dropped when the test ends.
func Copy(t testing.TB, name string, prepare func(url string) error) string {
	t.Helper()
	admin := server(t)
	templates.Lock()
	defer templates.Unlock()
	db := templates.ready[name]
	if db == "" {
		db = fmt.Sprintf("template_%d_%x", os.Getpid(), time.Now().UnixNano())
		if err := execute(admin, "create database "+db+" template template0"); err != nil {
			t.Fatalf("create a template database: %v", err)
		}
		if err := prepare(named(t, admin, db)); err != nil {
			t.Fatalf("prepare the template database %s: %v", name, err)
		}
		if templates.ready == nil {
			templates.ready = map[string]string{}
		}
		templates.ready[name] = db
	}
	return database(t, admin, db)
}

// server returns the URL of the process's server, which it starts.
func server(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.url = os.Getenv("PAIDONCE_TEST_POSTGRES"); shared.url != "" {
			return
		}
		s := &Server{settings: hasty}
		if shared.err = s.launch(); shared.err != nil {
			return
		}
		shared.server, shared.url = s, s.adminURL() // nobody stops it: its watcher does when the process ends
	})
	if shared.err != nil {
		fatal(t, shared.err)
	}
	return shared.url
}

// hasty are the settings of a server that tests break. No fsync: what they break is processes
// and connections, never the machine's power, and pages that the kernel holds survive the
// server. It halves the time of the suites.
var hasty = []string{"max_wal_size=256MB", "fsync=off", "full_page_writes=off"}

// Start starts a server for this test alone. It stops with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return begin(t, &Server{settings: hasty})
}

var durable = []string{"max_wal_size=8GB", "fsync=on", "full_page_writes=on", "synchronous_commit=on"}

// StartDurable is Start for measurements: the server syncs what it commits, as those of users
// do, and no checkpoint comes by size.
func StartDurable(t testing.TB) *Server {
	t.Helper()
	return begin(t, &Server{settings: durable})
}

func begin(t testing.TB, s *Server) *Server {
	t.Helper()
	if err := s.launch(); err != nil {
		fatal(t, err)
	}
	t.Cleanup(func() { s.disk.reset(); s.proc.stop(false) })
	return s
}

// URL returns the URL of a fresh, empty database on s.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	return database(t, s.adminURL(), "template0")
}

// StopImmediate stops the server as a crash would: no checkpoint, connections cut,
// recovery from the log at the next start.
func (s *Server) StopImmediate(t testing.TB) {
	t.Helper()
	s.proc.stop(true)
}

// Restart starts a stopped server again, on the same port and data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatalf("restart Postgres: %v", err)
	}
}

func (s *Server) adminURL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// PID is the process id of the server's first process, the parent of all others.
func (s *Server) PID() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(first)
}

// launch makes a directory and a cluster, and starts the server.
func (s *Server) launch() (err error) {
	if s.bin, err = binaries(); err != nil {
		return err
	}
	if s.owner, err = findOwner(); err != nil {
		return err
	}
	if s.dir, err = s.owner.dir("paidonce-pg-*"); err != nil {
		return err
	}
	args := append([]string{"-D", filepath.Join(s.dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync", "--no-instructions"}, s.initdb...)
	if out, err := s.owner.command(filepath.Join(s.bin, "initdb"), args...).CombinedOutput(); err != nil {
		os.RemoveAll(s.dir)
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s.first()
}

// first starts a server that has its cluster for the first time; what it has is removed when it cannot.
func (s *Server) first() (err error) {
	if s.disk != nil {
		if err := s.disk.lay(s.dir); err != nil {
			os.RemoveAll(s.dir)
			return err
		}
	}
	// The port is free now and may be taken a moment later; another one is free then.
	for range 3 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			return nil
		}
	}
	os.RemoveAll(s.dir)
	return err
}

// run starts the server and returns when it answers.
func (s *Server) run() error {
	argv := []string{"env"}
	if s.disk != nil {
		argv = append(argv, s.disk.env()...)
	}
	argv = append(argv, filepath.Join(s.bin, "postgres"),
		"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200")
	for _, setting := range s.settings {
		argv = append(argv, "-c", setting)
	}
	p, err := s.owner.start(s.dir, "QUIT", argv...)
	if err != nil {
		return err
	}
	if err := answers(s.adminURL()); err != nil {
		p.stop(true)
		return fmt.Errorf("%w\n%s", err, logTail(s.dir))
	}
	if s.disk != nil {
		if err := s.disk.loaded(); err != nil {
			p.stop(true)
			return err
		}
	}
	s.proc = p
	return nil
}

// answers waits until a server accepts connections.
func answers(url string) error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	for {
		c, err := pgx.Connect(ctx, url)
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer within 30 s: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// database creates a database named after the test, drops it when the test ends,
// and returns its URL.
func database(t testing.TB, admin, template string) string {
	t.Helper()
	name := "t_" + strings.ToLower(strings.Map(word, t.Name()))
	name = fmt.Sprintf("%.40s_%x", name, time.Now().UnixNano())
	if err := execute(admin, "create database "+name+" template "+template); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(admin, "drop database "+name+" with (force)"); err != nil {
			t.Logf("drop the test's database: %v", err)
		}
	})
	return named(t, admin, name)
}

// named is the URL of another database on the same server.
func named(t testing.TB, admin, name string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatalf("PAIDONCE_TEST_POSTGRES must be a URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

// Exec runs statements in the database at url.
func Exec(t testing.TB, url, sql string) {
	t.Helper()
	if err := execute(url, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// execute runs a statement on a connection of its own. The test's own context has ended
// when its clean-up runs.
func execute(url, sql string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql)
	return err
}

func word(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// binaries finds the directory that holds initdb and postgres.
func binaries() (string, error) {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(debian) // the newest first
	dirs = append(dirs, debian...)
	if p, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, d := range dirs {
		_, ierr := os.Stat(filepath.Join(d, "initdb"))
		_, perr := os.Stat(filepath.Join(d, "postgres"))
		if ierr == nil && perr == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("initdb and postgres are neither where pg_config says, nor in /usr/lib/postgresql, nor in PATH")
}
