// Package sqlite keeps the ledger in one SQLite file: the ledger of whoever configured
// none, and enough for one machine.
//
// One goroutine writes. Calls that arrive while it works or waits for the disk are
// committed together, in one transaction and with one fsync; a call that comes alone is not
// kept waiting for others. Within the transaction verbs run one after the other, each
// reads its rows, asks the table of package ledger, and writes: BEGIN IMMEDIATE is the
// lock that a verb holds on its job. Reads use connections of their own and wait for
// nobody.
//
// The file is in WAL mode with synchronous = FULL: an answer of this ledger is
// on the disk. Several processes of one machine may use one file; they wait for each
// other's transactions. Network file systems are refused, since SQLite's shared memory
// does not work across machines.
//
// SQLite has no clock of its own: rows are judged and written by the wall clock of the process
// that holds the lock, read once per row. The SQL is in sql/*.sql; every name of ours in
// the file begins with paidonce_, and Migrate makes and upgrades it.
package sqlite
