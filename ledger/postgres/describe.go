package postgres

import (
	"context"
	"fmt"
)

// Description is what the server does with what the ledger commits.
type Description struct {
	Version           string // the server's, "15.4"
	SynchronousCommit string // of the ledger's connections: on, remote_apply, remote_write, local; off is refused by Open
	Fsync             bool   // false: a crash of the server loses commits
	Replica           bool   // it replays another server and takes no writes
	Standbys          int    // replicas that are connected to it
	Waits             bool   // a commit waits for some of them (synchronous_standby_names)
	Owner             bool   // the login owns the ledger's tables, or may do all: more than a worker needs (Roles)
}

var describeSQL = statement("describe")

// Describe asks the server how safe a commit is. It needs no schema.
func (l *Ledger) Describe(ctx context.Context) (Description, error) {
	d, err := one[Description](ctx, l.pool, describeSQL)
	if err != nil {
		return d, fmt.Errorf("ask the ledger's server for its settings: %w", err)
	}
	return d, nil
}
