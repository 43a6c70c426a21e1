package repo

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// TestTLSIsVerified: nothing that is shipped can be told to believe whoever answers.
func TestTLSIsVerified(t *testing.T) {
	for _, s := range sources(t, func(p string) bool { return !isTest(p) }) {
		for _, found := range trusting(s) {
			t.Error(found)
		}
	}
}

func trusting(s source) (found []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && (id.Name == "InsecureSkipVerify" || id.Name == "VerifyPeerCertificate" || id.Name == "VerifyConnection") {
			found = append(found, fmt.Sprintf("%s:%d: %s: clients verify who answers; give them RootCAs instead", s.path, s.fset.Position(id.Pos()).Line, id.Name))
		}
		return true
	})
	return found
}

// given is a variable for a secret, with the beginning of its value in the same literal.
var given = regexp.MustCompile(`PAIDONCE_[A-Z_]*(?:API_KEY|TOKEN|SECRET|PASSWORD)=([^"\x60\s,]+)`)

// TestSecretsOfTestsAreRecognised: the Worlds of the tests look for planted secrets in all that is printed and stored. One of
// another form they would not find.
func TestSecretsOfTestsAreRecognised(t *testing.T) {
	seen := 0
	for _, path := range goFiles(t) {
		if !isTest(path) || strings.HasPrefix(path, "internal/repo/") {
			continue
		}
		text := read(t, path)
		seen += len(given.FindAllString(text, -1))
		for _, found := range unplanted(text) {
			t.Errorf("%s: the secret %q of a test cannot be recognised: let it hold \"planted\" (package internal/planted)", path, found)
		}
	}
	if seen < 5 {
		t.Errorf("%d secrets in all tests: the check proves nothing", seen)
	}
}

func unplanted(text string) (found []string) {
	for _, m := range given.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "planted") {
			found = append(found, m[1])
		}
	}
	return found
}

func TestSecretChecksFind(t *testing.T) {
	s := parse(t, "package p\n\nvar c = tls.Config{InsecureSkipVerify: true}\n")
	if got := trusting(s); len(got) != 1 {
		t.Errorf("found %q", got)
	}
	text := `"PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-real", "PAIDONCE_STEPS_SLACK_TOKEN=xoxb-planted", "PAIDONCE_STEPS_SLACK_TOKEN="+token`
	if got := unplanted(text); len(got) != 1 || got[0] != "sk-real" {
		t.Errorf("found %q", got)
	}
}

// TestThreatModel: each test that SECURITY.md names to show a measure is there, and so is each that the README names to show the guarantee.
func TestThreatModel(t *testing.T) {
	var all strings.Builder
	for _, path := range goFiles(t) {
		if isTest(path) {
			all.WriteString(read(t, path))
		}
	}
	for page, least := range map[string]int{"SECURITY.md": 20, "README.md": 8} {
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z]+)`").FindAllStringSubmatch(read(t, page), -1)
		if len(names) < least {
			t.Errorf("%s names %d tests", page, len(names))
		}
		for _, m := range names {
			if !strings.Contains(all.String(), "func "+m[1]+"(") {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
}
