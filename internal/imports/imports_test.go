// Package imports checks who may import whom, and what may be linked into a
// program. It holds tests only; the policy is the table in rules_test.go, and a
// package that the table does not know is refused until somebody gives it a row.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/paidonce/paidonce"

// pkg is what the checks need of one package of this module, as go list prints it.
type pkg struct {
	ImportPath   string
	Name         string
	Imports      []string // of its own files
	TestImports  []string
	XTestImports []string
	Deps         []string // everything that is linked with it, tests apart
}

// rel is the package's path within the module; "" is the root.
func (p pkg) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func TestImports(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 2 {
		t.Fatalf("go list found %d packages; the check would prove nothing", len(pkgs))
	}
	report(t, check(pkgs))
}

func TestLinked(t *testing.T) { report(t, checkLinked(list(t))) }

// TestChecksFail feeds the checks packages that break the policy, one
// each, and wants the reason named.
func TestChecksFail(t *testing.T) {
	own := func(rel string) string { return module + "/" + rel }
	for _, c := range []struct {
		name string
		pkg  pkg
		want string
	}{
		{"own package against the arrows", pkg{ImportPath: own("ledger"), Name: "ledger", Imports: []string{own("job")}}, "may not import job"},
		{"a driver in an interface package", pkg{ImportPath: own("broker"), Name: "broker", Imports: []string{"github.com/rabbitmq/amqp091-go"}}, "may not import github.com/rabbitmq/amqp091-go"},
		{"a driver in the wrong adapter", pkg{ImportPath: own("broker/rabbitmq"), Name: "rabbitmq", Imports: []string{"github.com/jackc/pgx/v5"}}, "may not import github.com/jackc/pgx/v5"},
		{"a driver in a test", pkg{ImportPath: own("consumer"), Name: "consumer", XTestImports: []string{"github.com/jackc/pgx/v5/pgxpool"}}, "tests of consumer may not import"},
		{"a module whose name starts alike", pkg{ImportPath: own("broker/sqs"), Name: "sqs", Imports: []string{"github.com/cenkalti/backoff-extra"}}, "may not import"},
		{"no row", pkg{ImportPath: own("scheduler"), Name: "scheduler"}, "has no row"},
		{"a vague name", pkg{ImportPath: own("internal/util"), Name: "util"}, "says nothing"},
		{"a vague folder", pkg{ImportPath: own("handlers/common/mail"), Name: "mail"}, "says nothing"},
		{"testing in the program", pkg{ImportPath: own("cmd/worker"), Name: "main", Deps: []string{"fmt", "testing"}}, "links testing"},
		{"a test server in the program", pkg{ImportPath: own("cmd/worker"), Name: "main", Deps: []string{own("internal/pgtest")}}, "links internal/pgtest"},
		{"a suite in the program", pkg{ImportPath: own("cmd/worker"), Name: "main", Deps: []string{own("broker/brokertest")}}, "links broker/brokertest"},
		{"testing in a library", pkg{ImportPath: own("job"), Name: "job", Deps: []string{"testing/fstest"}}, "links testing/fstest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := append(check([]pkg{c.pkg}), checkLinked([]pkg{c.pkg})...)
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want one complaint that contains %q", got, c.want)
			}
		})
	}
}

// check compares the direct imports of every package with its row.
func check(pkgs []pkg) []string {
	var bad []string
	for _, p := range pkgs {
		rel := p.rel()
		if w := vague(p); w != "" {
			bad = append(bad, fmt.Sprintf("package %s: the name %q says nothing about what is in it; name it after what it does", rel, w))
			continue
		}
		r, ok := rowOf(rel)
		if !ok {
			bad = append(bad, fmt.Sprintf("package %s has no row in internal/imports/rules_test.go: say there what it may import, and why", rel))
			continue
		}
		for _, imp := range p.Imports {
			if !allowed(r, imp, false) {
				bad = append(bad, fmt.Sprintf("package %s may not import %s: %s", rel, short(imp), r.why))
			}
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		slices.Sort(tests)
		for _, imp := range slices.Compact(tests) {
			if !allowed(r, imp, true) {
				bad = append(bad, fmt.Sprintf("tests of %s may not import %s: %s", rel, short(imp), r.why))
			}
		}
	}
	return bad
}

// checkLinked looks at everything that ends up in a user's binary.
func checkLinked(pkgs []pkg) []string {
	var bad []string
	for _, p := range pkgs {
		rel := p.rel()
		if testSupport(rel) {
			continue
		}
		for _, d := range p.Deps {
			in, own := strings.CutPrefix(d, module+"/")
			if isTesting(d) || own && testSupport(in) {
				bad = append(bad, fmt.Sprintf("package %s links %s: what is for tests must not be in anybody's program (it adds size and flags); see go list -deps", rel, short(d)))
			}
		}
	}
	return bad
}

func isTesting(path string) bool {
	return path == "testing" || strings.HasPrefix(path, "testing/") || path == "net/http/httptest"
}

// testSupport reports whether a package of ours is for tests only: suites and
// servers are named after what they test (brokertest, pgtest, jobtest), and
// whatever is internal is for tests unless the program is known to need it.
func testSupport(rel string) bool {
	last := rel[strings.LastIndex(rel, "/")+1:]
	if strings.HasSuffix(last, "test") {
		return true
	}
	return strings.HasPrefix(rel, "internal/") && !slices.Contains(linkedInternal, rel)
}

// vague returns the element of the package's path or its name that is a word for
// anything.
func vague(p pkg) string {
	for _, e := range append(strings.Split(p.rel(), "/"), p.Name) {
		if slices.Contains([]string{"util", "utils", "common", "types", "models", "helpers", "misc", "shared"}, e) {
			return e
		}
	}
	return ""
}

// rowOf finds the most specific row: the package's own, else that of the nearest
// parent that ends in "/...".
func rowOf(rel string) (row, bool) {
	if r, ok := rules[rel]; ok {
		return r, true
	}
	for dir := rel; strings.Contains(dir, "/"); {
		dir = dir[:strings.LastIndex(dir, "/")]
		if r, ok := rules[dir+"/..."]; ok {
			return r, true
		}
	}
	return row{}, false
}

// allowed reports whether a package with this row may import the path. Tests
// may use any package of this module on top (the compiler refuses cycles), but
// other modules only as the row says.
func allowed(r row, imp string, inTest bool) bool {
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		return true // standard library
	}
	own, isOwn := strings.CutPrefix(imp, module+"/")
	if isOwn && (inTest || slices.Contains(r.own, "*")) {
		return true
	}
	if isOwn {
		return slices.ContainsFunc(r.own, func(a string) bool { return covers(a, own) })
	}
	modules := r.modules
	if inTest {
		modules = slices.Concat(modules, r.tests)
	}
	return slices.ContainsFunc(modules, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
}

// covers reports whether the pattern a ("job", "handlers/...") names the package.
func covers(a, rel string) bool {
	dir, tree := strings.CutSuffix(a, "/...")
	return a == rel || tree && strings.HasPrefix(rel, dir+"/")
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

func report(t *testing.T, bad []string) {
	t.Helper()
	for _, b := range bad {
		t.Error(b)
	}
}

// list asks the go command about every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	return goList[pkg](t, "-json=ImportPath,Name,Imports,TestImports,XTestImports,Deps", "./...")
}

// goList runs go list in the module's root and decodes its stream of documents.
func goList[T any](t *testing.T, args ...string) []T {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	var all []T
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var v T
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list %s: reading its answer: %v", strings.Join(args, " "), err)
		}
		all = append(all, v)
	}
}
