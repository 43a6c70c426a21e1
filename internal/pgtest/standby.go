package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Addr is where the server listens, "host:port": the target of a fault proxy.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Standby starts a server that follows s. From then on s waits for it at every commit
// (synchronous replication), so that nothing that was committed is missing after Promote. It stops with
// the test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	b, err := s.standby()
	if err != nil {
		fatal(t, err)
	}
	t.Cleanup(func() {
		_ = execute(s.adminURL(), "alter system reset synchronous_standby_names") // fails where s is down
		_ = execute(s.adminURL(), "select pg_reload_conf()")
		b.disk.reset()
		b.proc.stop(false)
	})
	for _, sql := range []string{"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"} {
		Exec(t, s.adminURL(), sql)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if state, err := single(s.adminURL(), "select coalesce(max(sync_state), 'none') from pg_stat_replication"); err == nil && state == "sync" {
			return b
		} else if time.Now().After(end) {
			t.Fatalf("the standby follows in state %q within 30 s, want sync: %v", state, err)
		}
	}
}

func (s *Server) standby() (*Server, error) {
	dir, err := s.owner.dir("paidonce-pg-*")
	if err != nil {
		return nil, err
	}
	copied := s.owner.command(filepath.Join(s.bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", fmt.Sprint(s.port), "-U", "postgres",
		"-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if out, err := copied.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	// The copy of a server that waits for a standby must not wait for one itself.
	if err := appendTo(filepath.Join(dir, "data", "postgresql.auto.conf"), "synchronous_standby_names = ''\n"); err != nil {
		return nil, err
	}
	b := &Server{owner: s.owner, bin: s.bin, dir: dir, settings: append(slices.Clone(s.settings), "wal_retrieve_retry_interval=200ms")}
	if s.disk != nil {
		b.disk = &disk{unsynced: s.disk.unsynced}
	}
	return b, b.first()
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Promote makes a standby a server of its own, once the one that it followed is stopped.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if ok, err := single(s.adminURL(), "select pg_promote()::text"); err != nil || ok != "true" {
		t.Fatalf("promote the standby: %s, %v", ok, err)
	}
}

// FreezeReceiver stops the process of a standby that takes what its server commits: every commit there waits, as on a disk
// that does not sync. The returned function lets it go on.
func (s *Server) FreezeReceiver(t testing.TB) (thaw func() error) {
	t.Helper()
	var pid int
	text, err := single(s.adminURL(), "select coalesce(max(pid), 0)::text from pg_stat_wal_receiver")
	if err == nil {
		_, err = fmt.Sscan(text, &pid)
	}
	if err == nil && pid == 0 {
		err = fmt.Errorf("it has none")
	}
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		t.Fatalf("freeze the receiver of a standby: %v", err)
	}
	return func() error { return syscall.Kill(pid, syscall.SIGCONT) }
}

// single reads one text on a connection of its own.
func single(url, sql string) (text string, err error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	if err := c.QueryRow(ctx, sql).Scan(&text); err != nil {
		return "", fmt.Errorf("%s: %w", strings.TrimSpace(sql), err)
	}
	return text, nil
}
