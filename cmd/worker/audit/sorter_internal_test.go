package audit

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// However the process ends, nothing is left in the folder: the file has no name.
func TestFileHasNoName(t *testing.T) {
	s := sorter{folder: t.TempDir(), memory: 1}
	for i := range 3 {
		if err := s.add(encode(nil, &call{job: strings.Repeat("é", 200)}, uint64(2-i))); err != nil {
			t.Fatal(err)
		}
	}
	if in, err := os.ReadDir(s.folder); err != nil || len(in) > 0 || len(s.ends) != 2 {
		t.Errorf("%d parts are written, and the folder has %v, %v", len(s.ends), in, err)
	}
	n := 0
	if err := s.each(func(rec []byte) error {
		if c, _ := decode(rec); c.job != strings.Repeat("é", 127) || rec[keySize-1] != byte(n) {
			t.Errorf("record %d is %q of place %d", n, c.job, rec[keySize-1])
		}
		n++
		return nil
	}); err != nil || n != 3 {
		t.Errorf("%d records, %v", n, err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// Where a file keeps its name, it goes when the sorter is closed.
func TestFileWithName(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := sorter{file: f, named: true}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := sorter{folder: "/var/tmp", memory: 1, file: full}
	rec := encode(nil, &call{}, 1)
	err = errors.Join(s.add(rec), s.add(rec))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "PO562 writing a temporary file in /var/tmp, which had taken 0 MB of it:") || !strings.Contains(err.Error(), "set another folder with --temp") {
		t.Errorf("error %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
