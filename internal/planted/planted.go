// Package planted has the secrets of tests: each can be recognised, in whatever form it was written somewhere where no secret
// may be.
package planted

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Mark is in every secret of the tests.
const Mark = "planted"

// Secret is a secret of that kind ("sk"), long enough for whoever looks for secrets in texts.
func Secret(kind string) string { return kind + "-" + Mark + "-0123456789" }

// Key is an encryption key, in base64: 32 bytes.
func Key() string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(Mark+"!", 4))) }

// Forms are the texts by which a secret is found: as it is, as a database prints bytes, and in base64, wherever in a triple of bytes
// it begins.
func Forms() []string {
	forms := []string{Mark, hex.EncodeToString([]byte(Mark))}
	for skip := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + Mark))
		from, to := (skip*8+5)/6, (skip+len(Mark))*8/6 // digits that hold nothing else
		forms = append(forms, text[from:to])
	}
	return forms
}

// Find returns the places of secrets in a text, each with what is around it.
func Find(text string) (found []string) {
	for _, form := range Forms() {
		rest, at := text, 0
		for {
			i := strings.Index(rest, form)
			if i < 0 {
				break
			}
			from := at + i
			found = append(found, fmt.Sprintf("…%q…", text[max(0, from-60):min(len(text), from+len(form)+30)]))
			at = from + len(form)
			rest = text[at:]
		}
	}
	return found
}
