package repo

import (
	"bytes"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFile = 400 // lines of a Go file, tests included
	maxFunc = 40  // lines of nine functions in ten
)

// longFiles may be longer than maxFile, each for its reason.
var longFiles = map[string]string{}

// TestFileLength: a file that no longer fits in one look has a seam.
func TestFileLength(t *testing.T) {
	for _, path := range goFiles(t) {
		n := strings.Count(read(t, path), "\n")
		if _, ok := longFiles[path]; n > maxFile && !ok {
			t.Errorf("%s has %d lines, the limit is %d: split it where it has a seam", path, n, maxFile)
		}
		if _, ok := longFiles[path]; n <= maxFile && ok {
			t.Errorf("%s has %d lines now: take it out of longFiles", path, n)
		}
	}
}

// TestFunctionLength holds for each package: nine functions in ten have at
// most maxFunc lines. Tests and very small packages are not counted.
func TestFunctionLength(t *testing.T) {
	lengths := map[string][]int{}
	for _, s := range sources(t, func(p string) bool { return !isTest(p) }) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lengths[s.dir] = append(lengths[s.dir], s.fset.Position(f.End()).Line-s.fset.Position(f.Pos()).Line+1)
			}
		}
	}
	for dir, ls := range lengths {
		slices.Sort(ls)
		if p90 := ls[len(ls)*9/10]; len(ls) >= 10 && p90 > maxFunc {
			t.Errorf("package %s: one function in ten has %d lines or more (the longest %d); aim for %d", dir, p90, ls[len(ls)-1], maxFunc)
		}
	}
}

// foreign finds what only the machine of whoever wrote a line knows, and traces of
// tools. Each pattern is written so that it does not match itself.
var foreign = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`/[h]ome/[a-z][a-z0-9_-]*/|/[U]sers/[A-Za-z]|/[r]oot/|[C]:\\\\?Users`), "somebody's home folder"},
	{regexp.MustCompile(`(?m)(^|[^A-Za-z0-9_.}-])/[w]ork(/|\b)|/[t]mp/wt|\.[l]ibrary\b`), "a work folder of one machine"},
	{regexp.MustCompile(`\b(proxy|sum)\.[g]olang\.org|registry\.[n]pmjs|deb\.[d]ebian\.org`), "a registry's host; mirrors are set up on machines, not in the repository"},
	{regexp.MustCompile(`(?i)[c]o-authored-by:|[g]enerated (with|by) \[?(claude|chatgpt|copilot)|[g]ithub copilot|[c]laude code`), "a trailer of a tool"},
	{regexp.MustCompile(`(?m)^(<{7} |>{7} |={7}$)`), "a merge conflict"},
}

// TestForeign reads every text file.
func TestForeign(t *testing.T) {
	for _, path := range files(t) {
		text := read(t, path)
		if bytes.IndexByte([]byte(text[:min(len(text), 8000)]), 0) >= 0 {
			continue // not text
		}
		for _, f := range foreign {
			if loc := f.pattern.FindStringIndex(text); loc != nil {
				t.Errorf("%s:%d: %q is %s", path, 1+strings.Count(text[:loc[0]], "\n"), text[loc[0]:loc[1]], f.what)
			}
		}
	}
}

func TestForeignFinds(t *testing.T) {
	for _, text := range []string{
		"see /" + "home/ann/src", "cd /" + "work/main", "`/" + "work`", "/" + "tmp/wt/x", "GOPROXY=https://proxy." + "golang.org",
		"Co-" + "authored-by: x", "a\n<<<<<<" + "< HEAD\n",
	} {
		if !slices.ContainsFunc(foreign, func(f struct {
			pattern *regexp.Regexp
			what    string
		}) bool {
			return f.pattern.MatchString(text)
		}) {
			t.Errorf("%q was not found", text)
		}
	}
	for _, text := range []string{"cmd/worker", "./workers", "$HOME/work", "/workers/7"} {
		for _, f := range foreign {
			if f.pattern.MatchString(text) {
				t.Errorf("%q was taken for %s", text, f.what)
			}
		}
	}
}
