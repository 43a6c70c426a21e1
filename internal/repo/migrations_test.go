package repo

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
	"testing"
)

// TestMigrationsStay: a migration that has landed is never edited, since databases have it. What it
// made is changed by the next one. A new migration gets its line in testdata/migrations.sum.
func TestMigrationsStay(t *testing.T) {
	var sums strings.Builder
	for _, f := range files(t) {
		if dir, name := path.Split(f); strings.HasPrefix(f, "ledger/") && path.Base(dir) == "migrations" && path.Ext(name) == ".sql" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(read(t, f))), f)
		}
	}
	if want := read(t, "internal/repo/testdata/migrations.sum"); sums.String() != want || len(want) == 0 {
		t.Errorf("the migrations are\n%swant\n%s", sums.String(), want)
	}
}
