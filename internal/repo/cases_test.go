package repo

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cases is how many kinds of faults of other systems the project's list of cases has. Each is asserted by a
// test here, whose comment names its number: "Case N: …", "Cases N and M".
const cases = 87

var (
	caseNumbers = regexp.MustCompile(`\b[Cc]ases? ([0-9]+(?:, [0-9]+)*(?:,? and [0-9]+)?)\b`)
	number      = regexp.MustCompile(`[0-9]+`)
)

// TestEveryCaseIsTested: none of the cases loses its last test without notice.
func TestEveryCaseIsTested(t *testing.T) {
	noted := notedCases(sources(t, func(p string) bool {
		return isTest(p) || strings.HasPrefix(p, "ledger/ledgertest/") || strings.HasPrefix(p, "broker/brokertest/") // the suites
	}))
	for n := 1; n <= cases; n++ {
		if len(noted[n]) == 0 {
			t.Errorf("no test's comment names case %d: what it asserted is tested no more, or the comment was lost", n)
		}
	}
	for n, where := range noted {
		if n < 1 || n > cases {
			t.Errorf("%s: there is no case %d", where[0], n)
		}
	}
}

// notedCases finds the numbers in comments, and the files where each stands.
func notedCases(all []source) map[int][]string {
	noted := map[int][]string{}
	for _, s := range all {
		for _, c := range s.file.Comments {
			for _, m := range caseNumbers.FindAllStringSubmatch(c.Text(), -1) {
				for _, digits := range number.FindAllString(m[1], -1) {
					n, err := strconv.Atoi(digits)
					if err == nil && !slices.Contains(noted[n], s.path) {
						noted[n] = append(noted[n], s.path)
					}
				}
			}
		}
	}
	return noted
}

func TestNotedCasesFind(t *testing.T) {
	noted := notedCases([]source{parse(t, "package p\n\n// Cases 3, 14 and 15: x.\nfunc f(n int) {\n\tswitch n {\n\tcase 9:\n\t}\n}\n\n// g (case 7) is named too.\nfunc g() {}\n")})
	for n, want := range map[int]bool{3: true, 14: true, 15: true, 7: true, 9: false} {
		if (len(noted[n]) > 0) != want {
			t.Errorf("case %d found: %t, want %t", n, !want, want)
		}
	}
}
