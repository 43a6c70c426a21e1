package ledgertest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TenantIsNamed reads every statement of a ledger that keeps its SQL in files, sql/*.sql and
// migrations/*.sql below the test's folder: whatever table of tenants a
// statement touches, it finds its rows by tenant, so that two tenants never meet and the ledger can be
// distributed by tenant. prefix begins the names of the tables. across lists the
// statements (files without .sql) that may do without, each with its reason.
func TenantIsNamed(t *testing.T, prefix string, across map[string]string) {
	table := regexp.MustCompile(`(?:from|join|update|into)\s+` + regexp.QuoteMeta(prefix) + `(\w+)`)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	exempt := 0
	for _, file := range files {
		if across[strings.TrimSuffix(filepath.Base(file), ".sql")] != "" {
			exempt++
			continue
		}
		text := SQL(t, file)
		used := 0
		for _, m := range table.FindAllStringSubmatch(text, -1) {
			if m[1] != "worker" && m[1] != "schema" { // the tables without a tenant
				used++
			}
		}
		if named := strings.Count(text, "tenant"); named < used {
			t.Errorf("%s uses %d tables with tenants and names the tenant %d times", file, used, named)
		}
		if used > 0 && !regexp.MustCompile(`tenant = |\(tenant`).MatchString(text) {
			t.Errorf("%s does not find its rows by tenant", file)
		}
	}
	if exempt != len(across) {
		t.Errorf("%d exemptions are of statements that are not there", len(across)-exempt)
	}
	migrations, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var schema strings.Builder
	for _, file := range migrations {
		schema.WriteString(SQL(t, file))
	}
	keys := regexp.MustCompile(`(?m)(primary key|unique) \(([^)]*)`).FindAllStringSubmatch(schema.String(), -1)
	if len(keys) < 7 {
		t.Errorf("%d keys in the schema", len(keys))
	}
	for _, m := range keys {
		if !slices.Contains(strings.Split(m[2], ", "), "tenant") {
			t.Errorf("%s (%s) is without the tenant", m[1], m[2])
		}
	}
}

// SQL is the text of a file of SQL without its comments.
func SQL(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`--.*`).ReplaceAllString(string(b), "")
}
