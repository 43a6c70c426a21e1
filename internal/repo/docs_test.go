package repo

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestDocumented: every exported name of every package has a comment, and every
// package says what it is. Programs' and tests' own names are exempt.
func TestDocumented(t *testing.T) {
	missing := map[string][]string{} // by package
	described := map[string]bool{}
	all := sources(t, func(p string) bool { return !isTest(p) })
	for _, s := range all {
		described[s.dir] = described[s.dir] || s.file.Doc.Text() != ""
		if s.file.Name.Name != "main" && !ast.IsGenerated(s.file) {
			missing[s.dir] = append(missing[s.dir], undocumented(s)...)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(described)) {
		if !described[dir] {
			t.Errorf("package %s has no comment that says what it is for", dir)
		}
		if m := missing[dir]; len(m) > 0 {
			t.Errorf("package %s: %d exported names without a comment (say shapes, units, errors, defaults):\n\t%s", dir, len(m), strings.Join(m, "\n\t"))
		}
	}
	if len(all) == 0 {
		t.Error("found no source at all")
	}
}

// undocumented lists the exported names of one file that have no comment.
func undocumented(s source) []string {
	var missing []string
	note := func(n ast.Node, format string, args ...any) {
		p := s.fset.Position(n.Pos())
		missing = append(missing, fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...)))
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc.Text() == "" && exportedReceiver(d) && !wellKnown(d) {
				note(d, "func %s", d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					if d.Doc.Text() == "" && spec.Doc.Text() == "" {
						note(spec, "type %s", spec.Name.Name)
					}
					for _, f := range members(spec) {
						note(f, "%s.%s", spec.Name.Name, f.Names[0].Name)
					}
				case *ast.ValueSpec:
					if d.Doc.Text() == "" && spec.Doc.Text() == "" && spec.Comment.Text() == "" && exported(spec.Names) {
						note(spec, "%s %s", d.Tok, spec.Names[0].Name)
					}
				}
			}
		}
	}
	return missing
}

// members lists the methods of an interface that have no comment. Where there is
// one method only, the comment of the type speaks for it. (Fields are left to
// judgement: Job.State says enough, a duration or a nil-able one does not.)
func members(spec *ast.TypeSpec) []*ast.Field {
	typ, ok := spec.Type.(*ast.InterfaceType)
	if !ok || typ.Methods.NumFields() == 1 {
		return nil
	}
	var missing []*ast.Field
	for _, f := range typ.Methods.List {
		if len(f.Names) > 0 && exported(f.Names) && f.Doc.Text() == "" && f.Comment.Text() == "" {
			missing = append(missing, f)
		}
	}
	return missing
}

func exported(names []*ast.Ident) bool {
	return slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.IsExported() })
}

// exportedReceiver reports whether users can reach the function or method.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}

// wellKnown are methods whose meaning the standard library fixes.
func wellKnown(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "Is", "As", "String", "MarshalJSON", "UnmarshalJSON", "LogValue", "Len", "Less", "Swap"}, d.Name.Name)
}

func TestUndocumentedFinds(t *testing.T) {
	got := undocumented(parse(t, `// Package p is.
package p

type A struct{ B int }

// E is said.
type E interface{ F() }

// P is said.
type P interface {
	Q()
	R() // said
}

// G is said.
func (A) G() {}
func (A) H() {}
func (a) I() {}
func (A) Error() string { return "" }
func J() {}

const K = 1

// L and M are said.
const (
	L = 1
	M = 2
)

const (
	N = 1 // said
	O = 2
)
`))
	want := []string{"type A", "P.Q", "func H", "func J", "const K", "const O"}
	if len(got) != len(want) {
		t.Fatalf("found %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], ": "+want[i]) {
			t.Errorf("found %q, want %q", got[i], want[i])
		}
	}
}
