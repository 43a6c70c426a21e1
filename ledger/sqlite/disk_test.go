package sqlite_test

import (
	"database/sql"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	lib "modernc.org/sqlite/lib"
)

// disk is what SQLite writes to in this process. It can be full, as a device is: SQLite's VFS lets a test replace the system calls
// that it makes (xSetSystemCall), and whatever it puts into a file, its log and the log's index goes through pwrite.
var disk struct {
	once   sync.Once
	cause  string       // why it cannot be full; "": it can
	room   atomic.Int64 // how many writes find room; negative: all do
	index  atomic.Bool  // the log's index may not grow
	full   *os.File     // a device that has no room
	write  pwrite       // what SQLite calls: reachable as long as it does
	system uintptr      // what it called before
}

// pwrite is the system call, as SQLite in Go has it. The first argument is its thread.
type pwrite func(thread unsafe.Pointer, fd int32, buf uintptr, n lib.Tsize_t, at lib.Toff_t) lib.Tssize_t

// fillDisk leaves room for so many writes, until emptyDisk is called or the test is over. Negative: for all.
func fillDisk(t testing.TB, writes int64) {
	t.Helper()
	disk.once.Do(func() { disk.cause = replaceWrites(t) })
	if disk.cause != "" {
		t.Fatalf("no disk of SQLite can be made full here: %s", disk.cause)
	}
	t.Cleanup(emptyDisk)
	disk.room.Store(writes)
}

// fillIndexes leaves no room for the index of a log to grow, which it does by single bytes, and all for anything else.
func fillIndexes(t testing.TB) {
	t.Helper()
	fillDisk(t, -1)
	disk.index.Store(true)
}

func emptyDisk() {
	disk.room.Store(-1)
	disk.index.Store(false)
}

// hasRoom takes the room of a write of n bytes.
func hasRoom(n lib.Tsize_t) bool {
	for {
		switch left := disk.room.Load(); {
		case left < 0:
			return n != 1 || !disk.index.Load()
		case left == 0:
			return false
		case disk.room.CompareAndSwap(left, left-1):
			return true
		}
	}
}

// writeOrNot writes, or fails as a full device does.
func writeOrNot(thread unsafe.Pointer, fd int32, buf uintptr, n lib.Tsize_t, at lib.Toff_t) lib.Tssize_t {
	if !hasRoom(n) {
		fd = int32(disk.full.Fd())
	}
	return (*(*pwrite)(unsafe.Pointer(&struct{ uintptr }{disk.system})))(thread, fd, buf, n, at)
}

// replaceWrites puts writeOrNot in, and says why it cannot.
func replaceWrites(t testing.TB) string {
	emptyDisk()
	var err error
	if disk.full, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		return "it takes the device of Linux that is always full: " + err.Error()
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	cause := "the driver's connection has no thread"
	err = conn.Raw(func(c any) error {
		if thread := reflect.ValueOf(c).Elem().FieldByName("tls"); thread.IsValid() && thread.Kind() == reflect.Pointer {
			cause = setPwrite(thread.UnsafePointer())
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return cause
}

func setPwrite(thread unsafe.Pointer) string {
	vfs := defaultVFS(lib.Xsqlite3_vfs_find, thread)
	if vfs == nil || vfs.FxSetSystemCall == 0 || vfs.FxGetSystemCall == 0 || vfs.FxNextSystemCall == 0 {
		return "the VFS lets no system call be replaced"
	}
	get := *(*func(unsafe.Pointer, uintptr, uintptr) uintptr)(unsafe.Pointer(&struct{ uintptr }{vfs.FxGetSystemCall}))
	set := *(*func(unsafe.Pointer, uintptr, uintptr, uintptr) int32)(unsafe.Pointer(&struct{ uintptr }{vfs.FxSetSystemCall}))
	next := *(*func(unsafe.Pointer, uintptr, uintptr) uintptr)(unsafe.Pointer(&struct{ uintptr }{vfs.FxNextSystemCall}))
	const wanted = "pwrite\x00"
	name := next(thread, 0, 0) // SQLite's own, since what is Go's must not be a C string
	for name != 0 && string((*(**[len(wanted)]byte)(unsafe.Pointer(&name)))[:]) != wanted {
		name = next(thread, 0, name)
	}
	if name == 0 {
		return "SQLite does not call pwrite here"
	}
	disk.write, disk.system = writeOrNot, get(thread, 0, name)
	if rc := set(thread, 0, name, *(*uintptr)(unsafe.Pointer(&disk.write))); rc != lib.SQLITE_OK {
		return "SQLite keeps its own pwrite"
	}
	return ""
}

// defaultVFS asks for it. The driver's type of a thread has no name here, and needs none.
func defaultVFS[thread any](find func(*thread, uintptr) uintptr, t unsafe.Pointer) *lib.Tsqlite3_vfs {
	at := find((*thread)(t), 0)
	return *(**lib.Tsqlite3_vfs)(unsafe.Pointer(&at))
}
