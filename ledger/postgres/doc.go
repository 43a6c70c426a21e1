// Package postgres keeps the ledger in PostgreSQL (14 or newer).
//
// The SQL is in sql/*.sql, with the reasons in its comments. Most verbs are one
// statement, which locks the job row, checks the guards against it and writes
// the change, its event and the child rows; verbs that read other tables under the lock send
// two statements in one pipeline, so that the second sees what came before. Rare verbs
// lock the row, evaluate the table of package ledger in Go, and write.
//
// A pool of four connections serves a process: none is held while a handler or a model
// runs. It works through PgBouncer in transaction mode without any setting (no
// LISTEN, no session locks, no named prepared statements there).
//
// Tables are in a schema of their own, paidonce. Migrate makes and upgrades it.
package postgres
