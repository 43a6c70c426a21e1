// Package repo checks the repository itself: sizes, names, documentation, error
// codes, the compose file. It holds tests only.
package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// files lists every text file that is or could be committed, by its path from the
// root with forward slashes.
func files(t *testing.T) []string {
	t.Helper()
	ignored := []string{".git", "bin", "node_modules"}
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(ignored, d.Name()) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && d.Name() != ".git" { // a worktree's .git is a file
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("listing the repository: %v", err)
	}
	if !slices.Contains(all, "go.mod") {
		t.Fatalf("found %d files and no go.mod: the checks would prove nothing", len(all))
	}
	return all
}

// goFiles are the Go files of this module; tools is a module of its own.
func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(f string) bool {
		return !strings.HasSuffix(f, ".go") || strings.HasPrefix(f, "tools/")
	})
}

func read(t *testing.T, rel string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
	if err != nil {
		t.Fatalf("reading a file of the repository: %v", err)
	}
	return string(b)
}

// source is one parsed Go file.
type source struct {
	path string
	dir  string // its package's folder
	fset *token.FileSet
	file *ast.File
}

// sources parses the Go files for which keep is true.
func sources(t *testing.T, keep func(path string) bool) []source {
	t.Helper()
	var all []source
	for _, path := range goFiles(t) {
		if !keep(path) {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, read(t, path), parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		dir := "."
		if i := strings.LastIndex(path, "/"); i >= 0 {
			dir = path[:i]
		}
		all = append(all, source{path, dir, fset, f})
	}
	return all
}

func isTest(path string) bool { return strings.HasSuffix(path, "_test.go") }

// parse reads a file given as text.
func parse(t *testing.T, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{"p.go", "p", fset, f}
}
