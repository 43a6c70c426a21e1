package repo

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const errorsPage = "docs/errors.md"

var (
	code    = regexp.MustCompile(`\bPO[0-9]{3}\b`)
	codeRow = regexp.MustCompile(`^\| (PO[0-9]{3}) \| ([^|]+) \| ([^|]+) \|$`)
)

// shared are codes that two packages print, with one meaning.
var shared = map[string]string{
	"PO402": "no UTF-8: consumer says it of the envelope, job of the input",
}

// TestErrorCodes (case 69) compares the codes that the sources can print with the page that
// explains them: each is there, with what happened and what to do, and none
// is there that no source prints.
func TestErrorCodes(t *testing.T) {
	used, bad := codes(sources(t, func(p string) bool {
		return !isTest(p) && !strings.Contains(p, "test/") && !strings.HasPrefix(p, "internal/simulate/") // suites quote codes of others
	}))
	for _, b := range bad {
		t.Error(b)
	}
	page, bad := codePage(read(t, errorsPage))
	for _, b := range bad {
		t.Error(b)
	}
	for _, c := range slices.Sorted(maps.Keys(used)) {
		if !page[c] {
			t.Errorf("%s (%s) is not explained: add to %s, in its section, in order, the line\n\t| %s | what happened | what to do |", c, used[c], errorsPage, c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(page)) {
		if used[c] == "" {
			t.Errorf("%s is explained in %s, but no source prints it: take its line out", c, errorsPage)
		}
	}
}

// codes finds the codes in string literals and where each is printed. One
// code belongs to one package: in two it would soon mean two things.
func codes(all []source) (used map[string]string, bad []string) {
	used = map[string]string{}
	owner := map[string]string{}
	for _, s := range all {
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			at := fmt.Sprintf("%s:%d", s.path, s.fset.Position(lit.Pos()).Line)
			for _, c := range code.FindAllString(text, -1) {
				if owner[c] == "" {
					owner[c], used[c] = s.dir, at
				}
				if owner[c] != s.dir && shared[c] == "" {
					bad = append(bad, fmt.Sprintf("%s is printed by package %s (%s) and by package %s (%s): take a free number for one of them", c, owner[c], used[c], s.dir, at))
				}
			}
			return true
		})
	}
	return used, bad
}

// codePage reads the rows of the page and complains about those out of form or
// out of place.
func codePage(text string) (page map[string]bool, bad []string) {
	page = map[string]bool{}
	last, section := "", ""
	for i, line := range strings.Split(text, "\n") {
		if s, ok := strings.CutPrefix(line, "## PO"); ok {
			section = "PO" + s[:1]
		}
		if !strings.HasPrefix(line, "| PO") {
			continue
		}
		m := codeRow.FindStringSubmatch(line)
		switch {
		case m == nil:
			bad = append(bad, fmt.Sprintf("%s:%d: want | POnnn | what happened | what to do |, have %s", errorsPage, i+1, line))
			continue
		case m[1] <= last:
			bad = append(bad, fmt.Sprintf("%s:%d: %s stands after %s: each once, in order", errorsPage, i+1, m[1], last))
		case !strings.HasPrefix(m[1], section):
			bad = append(bad, fmt.Sprintf("%s:%d: %s stands in the section of %sxx", errorsPage, i+1, m[1], section))
		}
		last = m[1]
		page[m[1]] = true
	}
	return page, bad
}

func TestErrorCodesFind(t *testing.T) {
	a := parse(t, "package a\n\nvar x = \"PO101 gone\" // PO999 is a comment\n")
	b := parse(t, "package b\n\nvar y = \"PO101 here\" + `PO102 %d`\n")
	a.dir, b.dir = "a", "b"
	used, bad := codes([]source{a, b})
	if len(used) != 2 || used["PO101"] == "" || used["PO102"] == "" || len(bad) != 1 {
		t.Errorf("codes: %v, %q; want PO101, PO102 and one complaint about PO101", used, bad)
	}
	page, bad := codePage("## PO1xx\n| PO102 | a | b |\n| PO101 | a | b |\n| PO103 | a |\n| PO201 | a | b |\n")
	if !maps.Equal(page, map[string]bool{"PO101": true, "PO102": true, "PO201": true}) || len(bad) != 3 {
		t.Errorf("page: %v, %q; want three rows and complaints about order, form and section", page, bad)
	}
}
