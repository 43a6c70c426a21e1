package sqlite_test

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// TestListings: each filter is answered by an index, and nothing but the few open jobs is sorted.
func TestListings(t *testing.T) {
	db := raw(t, file(t))
	for _, tenant := range []string{"", "acme"} {
		for _, action := range []string{"", "a"} {
			for _, state := range append(ledger.States(), "") {
				f := ledger.Filter{Tenant: tenant, Action: action, State: state}
				rows, err := db.QueryContext(t.Context(), "explain query plan "+sqlite.Listing(f), tenant, action, 20)
				if err != nil {
					t.Fatalf("%+v: %v", f, err)
				}
				var plan []string
				for rows.Next() {
					var id, parent, other int
					var detail string
					if err := rows.Scan(&id, &parent, &other, &detail); err != nil {
						t.Fatal(err)
					}
					plan = append(plan, detail)
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				open := state == ledger.Ready || state == ledger.Running || state == ledger.Unknown
				by, how := "SEARCH j USING ", "" // an index, by a condition
				switch failed := state == ledger.Failed || state == ledger.Cancelled; {
				case open:
					how = "INDEX paidonce_job_open (state=?)"
				case failed && tenant != "":
					how = "INDEX paidonce_job_failed_tenant (tenant=? AND state=?)"
				case failed && action != "":
					how = "INDEX paidonce_job_failed_action (state=? AND action=?)"
				case failed:
					how = "INDEX paidonce_job_failed (state=?)"
				case tenant != "":
					how = "PRIMARY KEY (tenant=?)"
				case action != "":
					how = "INDEX paidonce_job_action (action=?)"
				default: // from its newest end
					by, how = "SCAN j USING ", "INDEX paidonce_job_created"
				}
				if plan[0] != by+how || open != strings.Contains(strings.Join(plan, "\n"), "TEMP B-TREE") {
					t.Errorf("%+v: want %s\n%s", f, by+how, strings.Join(plan, "\n"))
				}
			}
		}
	}
}
