// Package postgres keeps the ledger in PostgreSQL (14 or newer).
//
// The SQL is in sql/*.sql, with the reasons in its comments. The verbs of a run are statements
// for many (group.go): those that are asked for at the same time are one statement and one
// commit, and one that is asked for alone goes at once. A statement locks the job rows, checks the
// guards against each and writes the changes, their events and the child rows; verbs that read
// other tables under the lock send two statements in one pipeline, so that the second sees
// what came before. Rare verbs lock the row, evaluate the table of package ledger in Go, and write.
//
// A pool of four connections serves a process: none is held while a handler or a model
// runs. It works through PgBouncer in transaction mode without any setting (no
// LISTEN, no session locks, no named prepared statements there).
//
// Tables are in a schema of their own, paidonce. Migrate makes and upgrades it.
package postgres
