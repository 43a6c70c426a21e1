package pgtest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Disk is what a server's disk, and the way to it, are like beside what they really are. The zero value is nothing.
type Disk struct {
	// Sync is what each fsync and fdatasync takes more.
	Sync time.Duration
	// Trip is what the first reply after each request takes more.
	Trip time.Duration
	// Full: no file of tables and indexes may grow. A statement that wants more room ends with SQLSTATE 53100.
	Full bool
	// FullLog: no file of the write-ahead log may grow, and none be made. The server dies of the next that it needs, see FillLog.
	FullLog bool
}

// StartWithDisk is Start with a disk that SetDisk changes. It says of every fsync that it is done, and makes none: what
// tests break is processes. It needs a C compiler and Linux.
func StartWithDisk(t testing.TB) *Server {
	t.Helper()
	// The log's files are small, and made anew: so the next one is soon needed. A standby that was away finds the old ones.
	settings := []string{"max_wal_size=256MB", "min_wal_size=2MB", "wal_recycle=off", "wal_keep_size=256MB", "fsync=on", "full_page_writes=off"}
	return begin(t, &Server{settings: settings, initdb: []string{"--wal-segsize=1"}, disk: &disk{unsynced: true}})
}

// StartDurableOn is StartDurable on a disk that is as d says. It needs a C compiler and Linux.
func StartDurableOn(t testing.TB, d Disk) *Server {
	t.Helper()
	s := begin(t, &Server{settings: durable, disk: &disk{}})
	s.SetDisk(t, d)
	return s
}

// disk is a server's library and the file that it heeds.
type disk struct {
	unsynced bool   // nothing is really synced
	lib      string // paths
	words    string
}

// The places of the words of that file, which disk/disk.c describes.
const (
	wordLoaded = 8 * iota
	wordSync
	wordTrip
	wordUnsynced
	wordFull
	wordSynced
	wordRefused
	wordsEnd
)

//go:embed disk/disk.c
var diskSource []byte

// diskLibrary is the library, compiled once a process.
var diskLibrary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "paidonce-disk-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, lib := filepath.Join(dir, "disk.c"), filepath.Join(dir, "disk.so")
	if err := os.WriteFile(source, diskSource, 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", lib, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the library that makes a disk slow or full, which needs a C compiler (Debian, Ubuntu: apt-get install gcc libc6-dev) and Linux: %w\n%s", err, out)
	}
	return os.ReadFile(lib)
})

// lay puts the library and its file into the server's directory.
func (d *disk) lay(dir string) error {
	lib, err := diskLibrary()
	if err != nil {
		return err
	}
	d.lib, d.words = filepath.Join(dir, "disk.so"), filepath.Join(dir, "disk.words")
	err = errors.Join(os.WriteFile(d.lib, lib, 0o755), os.WriteFile(d.words, make([]byte, wordsEnd), 0o666),
		os.Chmod(d.words, 0o666)) // the server runs as somebody else
	if d.unsynced {
		err = errors.Join(err, d.write(wordUnsynced, 1))
	}
	return err
}

// reset makes the disk what it is: a server that stops must not wait for one that a test made slow.
func (d *disk) reset() {
	if d != nil {
		_ = errors.Join(d.write(wordSync, 0), d.write(wordTrip, 0), d.write(wordFull, 0)) // gone with the server's directory
	}
}

// env is for the server's processes.
func (d *disk) env() []string { return []string{"LD_PRELOAD=" + d.lib, "PGTEST_DISK=" + d.words} }

// loaded says whether the server has the library.
func (d *disk) loaded() error {
	if n, err := d.read(wordLoaded); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("the server runs without %s, which LD_PRELOAD names: that works on Linux, with a C library that is not static", d.lib))
	}
	return nil
}

// write changes a word; whoever maps the file reads the old or the new one.
func (d *disk) write(at int64, v int64) error {
	f, err := os.OpenFile(d.words, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(v)), at)
	return errors.Join(err, f.Close())
}

func (d *disk) read(at int64) (int64, error) {
	b, err := os.ReadFile(d.words)
	if err != nil {
		return 0, err
	}
	return int64(binary.NativeEndian.Uint64(b[at:])), nil
}

// SetDisk changes the disk of a server that StartWithDisk or StartDurableOn started, or of its standby.
func (s *Server) SetDisk(t testing.TB, d Disk) {
	t.Helper()
	full := int64(0)
	if d.Full {
		full |= 1
	}
	if d.FullLog {
		full |= 2
	}
	err := errors.Join(s.disk.write(wordSync, d.Sync.Microseconds()), s.disk.write(wordTrip, d.Trip.Microseconds()), s.disk.write(wordFull, full))
	if err != nil {
		t.Fatalf("change the server's disk: %v", err)
	}
}

// Synced is how many fsyncs and fdatasyncs the server asked for, and Refused how many of its writes met a full disk.
func (s *Server) Synced(t testing.TB) int { t.Helper(); return s.word(t, wordSynced) }

// Refused is described with Synced.
func (s *Server) Refused(t testing.TB) int { t.Helper(); return s.word(t, wordRefused) }

func (s *Server) word(t testing.TB, at int64) int {
	t.Helper()
	n, err := s.disk.read(at)
	if err != nil {
		t.Fatalf("read what became of the server's disk: %v", err)
	}
	return int(n)
}

// FillLog makes the disk of the write-ahead log full, and the server write to it until it dies of that (PANIC). It recovers by
// itself if the log has room for that, else it ends: Recover. It needs StartWithDisk.
func (s *Server) FillLog(t testing.TB) {
	t.Helper()
	s.SetDisk(t, Disk{FullLog: true})
	const two = "select pg_logical_emit_message(false, 'full', repeat('x', 300000)) from generate_series(1, 8)" // files of the log, and more
	if err := execute(s.adminURL(), two); err == nil {
		t.Fatal("the server wrote two files of its log to a full disk")
	}
}

// Recover makes room on the disk, and waits until the server answers. One that has ended is started again.
func (s *Server) Recover(t testing.TB) {
	t.Helper()
	s.SetDisk(t, Disk{})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := s.PID(); err != nil {
			s.proc.stop(true)
			s.Restart(t)
			return
		}
		if err := execute(s.adminURL(), "select 1"); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the server does not recover within a minute: %v\n%s", err, logTail(s.dir))
		}
	}
}
