package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	driver "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/paidonce/paidonce/ledger"
)

var _ ledger.Store = (*Ledger)(nil)

var (
	// ErrFile: the file cannot serve as a ledger: it is missing, no SQLite database, may not
	// be written, or lies on a network file system.
	ErrFile = errors.New("PO232 the SQLite ledger's file cannot be used")
	// ErrBusy: another process has held the file's write lock for too long.
	ErrBusy = errors.New("PO233 the SQLite ledger is locked by another process")
)

// readConns bounds the connections that read.
const readConns = 4

// Ledger is a ledger.Store in an SQLite file. Make one with Open.
type Ledger struct {
	path    string
	db      *sql.DB // the writer's only connection
	writer  *writer
	readers *readers
	closing sync.Once
}

// Open opens the ledger in the file at path, which is there: Migrate makes it. It
// does not look at the schema: Ping does. The caller closes the ledger.
//
// Errors wrap ErrFile when the file cannot be used as it is, ErrBusy when another process
// does not let go of it, ledger.ErrFull when there is no room for what SQLite keeps beside it.
func Open(ctx context.Context, path string) (*Ledger, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	db, conn, err := connect(ctx, path, "rw")
	if err != nil {
		return nil, err
	}
	w, err := newWriter(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	reading, err := sql.Open("sqlite", dsn(path, "rw", "query_only(1)", fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds())))
	if err != nil {
		return nil, errors.Join(err, w.close(), db.Close())
	}
	reading.SetMaxOpenConns(readConns)
	reading.SetMaxIdleConns(readConns)
	return &Ledger{path: path, db: db, writer: w, readers: &readers{pool: pool{statements: statements{on: reading}}, db: reading}}, nil
}

// Close commits what is under way and closes the file. Verbs that wait are answered
// with an error. It may be called again.
func (l *Ledger) Close() {
	l.closing.Do(func() { // what was told to callers is on the disk; there is nothing left to lose
		_ = l.writer.close()
		_ = l.db.Close()
		_ = l.readers.statements.close()
		_ = l.readers.db.Close()
	})
}

// dsn is the file's name for the driver, with pragmas that every connection sets.
func dsn(path, mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_pragma": pragmas}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// connect makes the connection that writes. synchronous(FULL) syncs the WAL at every commit:
// with less, the last commits would be gone after a power loss, and with them the record
// of calls that were sent and paid. fullfsync is the same for macOS, where fsync alone
// does not reach the disk. A WAL that has grown in a rush is cut back to 64 MiB.
func connect(ctx context.Context, path, mode string) (*sql.DB, *sql.Conn, error) {
	db, err := sql.Open("sqlite", dsn(path, mode, "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)", "foreign_keys(1)",
		"cache_size(-32768)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)", "temp_store(MEMORY)", "busy_timeout(0)"))
	if err != nil {
		return nil, nil, err
	}
	var conn *sql.Conn
	err = retry(func() (err error) { conn, err = db.Conn(ctx); return err })
	if err != nil {
		return nil, nil, errors.Join(refuse(path, err), db.Close())
	}
	if err := walMode(ctx, conn, path); err != nil {
		return nil, nil, errors.Join(err, conn.Close(), db.Close())
	}
	return db, conn, nil
}

// walMode turns the file to WAL mode, where readers and the writer do not wait for each
// other. It stays so. Processes that open a new file at once have to take turns.
func walMode(ctx context.Context, conn *sql.Conn, path string) error {
	var mode string
	err := retry(func() error { return conn.QueryRowContext(ctx, "pragma journal_mode(WAL)").Scan(&mode) })
	if err != nil {
		return refuse(path, err)
	}
	if mode != "wal" {
		return fmt.Errorf("%w: %s stays in journal mode %q; the file system must support shared memory", ErrFile, path, mode)
	}
	return nil
}

// check refuses what could not work, before a connection is made.
func check(path string) error {
	if err := checkFolder(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no file %s; make it with: worker migrate up", ErrFile, path)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFile, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file", ErrFile, path)
	}
	return nil
}

func checkFolder(path string) error {
	if path == "" || strings.ContainsAny(path, "?\x00") {
		return fmt.Errorf("%w: %q is no path of a file; options after a ? are not known", ErrFile, path)
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no folder %s; make it first", ErrFile, dir)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFile, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no folder", ErrFile, dir)
	}
	network, err := networkFS(dir)
	if err != nil {
		return fmt.Errorf("%w: ask for the file system of %s: %w", ErrFile, dir, err)
	}
	if network != "" {
		return fmt.Errorf("%w: %s is on a network file system (%s), where its locks cannot be trusted; move it to a local disk, or use Postgres",
			ErrFile, path, network)
	}
	return nil
}

// refuse puts an error of opening a file into words.
func refuse(path string, err error) error {
	switch sqlCode(err) {
	case code.SQLITE_NOTADB:
		return fmt.Errorf("%w: %s is no SQLite database: %w", ErrFile, path, err)
	case code.SQLITE_READONLY, code.SQLITE_CANTOPEN, code.SQLITE_PERM:
		return fmt.Errorf("%w: %s cannot be written; check the rights of the file and of its folder, where SQLite keeps two more files: %w", ErrFile, path, err)
	case code.SQLITE_BUSY, code.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return fmt.Errorf("open the SQLite ledger %s: %w", path, explain(err))
}

// explain puts an error of a verb into words where the driver's alone does not help.
func explain(err error) error {
	switch sqlCode(err) {
	case code.SQLITE_READONLY, code.SQLITE_CORRUPT, code.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrFile, err)
	case code.SQLITE_BUSY, code.SQLITE_LOCKED:
		if !errors.Is(err, ErrBusy) {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
	if full(err) {
		return fmt.Errorf("%w: %w", ledger.ErrFull, err)
	}
	return err
}

// full reports whether SQLite found no room for what was to be written, so that nothing of it happened. The index of its log grows apart from
// the log, when a file is opened and in a commit; where that finds no room SQLite calls it an I/O error.
func full(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && (e.Code()&0xff == code.SQLITE_FULL || e.Code() == code.SQLITE_IOERR_SHMSIZE)
}

// sqlCode is the primary result code in err, or 0.
func sqlCode(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool { return sqlCode(err) == code.SQLITE_BUSY }

// deferred reports a constraint that was checked at the commit: one on the user's rows,
// since ours have none.
func deferred(err error) bool { return sqlCode(err) == code.SQLITE_CONSTRAINT }
