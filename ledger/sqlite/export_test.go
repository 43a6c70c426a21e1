package sqlite

import (
	"context"
	"fmt"
)

// Listing is the statement that lists the jobs of a filter.
var Listing = listing

// Fill takes all room from the writer: its file may not have a page more than it has, as on a disk that is full. Empty gives it back.
func (l *Ledger) Fill(ctx context.Context) error { return l.pages(ctx, 1) }

// Empty is described with Fill.
func (l *Ledger) Empty(ctx context.Context) error { return l.pages(ctx, 1<<30) }

func (l *Ledger) pages(ctx context.Context, n int) error {
	_, err := l.writer.conn.ExecContext(ctx, fmt.Sprintf("pragma max_page_count = %d", n))
	return err
}
