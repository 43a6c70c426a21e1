package repo

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// skips are the files and folders with tests that may be left out, each for its
// reason.
var skips = map[string]string{
	"broker/brokertest":             "a suite says which of its cases a broker cannot have (no connection to cut, no size limit)",
	"ledger/ledgertest":             "a suite says which of its cases a store cannot have",
	"internal/rabbittest/server.go": "PAIDONCE_TEST_AMQP names a broker of the user's, which tests must not kill",
}

// TestNothingLeftOut: a skipped test hides what it would find, and a note to
// do it later is an issue, not a comment.
func TestNothingLeftOut(t *testing.T) {
	for _, s := range sources(t, func(string) bool { return true }) {
		for _, found := range leftOut(s) {
			if skips[s.path] == "" && skips[s.dir] == "" {
				t.Error(found)
			}
		}
	}
}

func leftOut(s source) []string {
	var found []string
	say := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(n.Pos()).Line, what))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			x, _ := sel.X.(*ast.Ident)
			switch name := sel.Sel.Name; {
			case name == "Skip" || name == "Skipf" || name == "SkipNow":
				say(n, name+": a test that cannot run fails and says why")
			case name == "Short" && x != nil && x.Name == "testing":
				say(n, "testing.Short: every test runs every time")
			}
		}
		return true
	})
	for _, g := range s.file.Comments {
		if m := regexp.MustCompile(`\b(T[O]DO|F[I]XME|X[X]X)\b`).FindString(g.Text()); m != "" {
			say(g, m+": do it, or open an issue")
		}
	}
	return found
}

func TestLeftOutFinds(t *testing.T) {
	got := leftOut(parse(t, "package p\n\nfunc f() {\n\tt.Skip(1)\n\tif testing.Short() {}\n\t// TO"+"DO: more\n\tx.Short()\n}\n"))
	if len(got) != 3 {
		t.Errorf("found %q, want the skip, Short and the note", got)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: every link of a page to a file of the repository leads somewhere.
func TestLinks(t *testing.T) {
	for _, page := range files(t) {
		if !strings.HasSuffix(page, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}
