package jobtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/job"
)

// NoCollisions wants of keys that two tenants never share one, nor two entities of one tenant, whatever is in their names, and that a key is the same at every
// time. key makes the key of a job for a tenant and the entity that it is about; all else in the message it leaves as it is. The names are made up, the same in every run of the test, with the separators, prefixes and escapes that
// have gone wrong elsewhere; such as no key takes are passed over.
func NoCollisions(t *testing.T, key func(tenant, entity string) job.Key) {
	t.Helper()
	noCollisions(t, t, key)
}

// noCollisions reports to tb: the first of each fault.
func noCollisions(t *testing.T, tb testing.TB, key func(tenant, entity string) job.Key) {
	t.Helper()
	tb.Helper()
	told := map[string]bool{}
	var faults []string // told after the bubble, where the line is that of the test
	fault := func(kind, what, fix string) {
		if !told[kind] {
			told[kind] = true
			faults = append(faults, fmt.Sprintf("jobtest: %s\n    fix:   %s", what, fix))
		}
	}
	if err := key("acme", "9821").Check(); err != nil {
		tb.Errorf("jobtest: tenant acme and entity 9821 have no key: %v\n    fix:   JobKey must make a key of every plain tenant and id", err)
		return
	}
	pairs := names(3000)
	first := make([]string, len(pairs))
	synctest.Test(t, func(*testing.T) {
		by := map[string]pair{}
		for i, p := range pairs {
			k := key(p.tenant, p.entity)
			if k.Check() != nil {
				continue
			}
			first[i] = k.String()
			if k.Tenant() != p.tenant {
				fault("tenant", fmt.Sprintf("the key %s of tenant %q is one of tenant %q", k, p.tenant, k.Tenant()), "the first argument of job.K is the tenant, and nothing else")
			}
			if q, ok := by[first[i]]; ok && q != p {
				fault(collision(p, q), fmt.Sprintf("two jobs have the key %s: %s, and %s", k, p, q),
					"give job.K the tenant and each part of what the job is about as an argument of its own, whole and unchanged: it escapes and joins them")
			}
			by[first[i]] = p
		}
		time.Sleep(25 * time.Hour)
		for i, p := range pairs {
			if k := key(p.tenant, p.entity).String(); first[i] != "" && k != first[i] {
				fault("stable", fmt.Sprintf("%s had the key %s, and has %s a day later", p, first[i], k), keyFix)
			}
		}
	})
	for _, f := range faults {
		tb.Error(f)
	}
}

func collision(p, q pair) string {
	if p.tenant != q.tenant {
		return "tenants"
	}
	return "entities"
}

// pair is whose a job is, and what it is about.
type pair struct{ tenant, entity string }

// String quotes both.
func (p pair) String() string { return fmt.Sprintf("tenant %q with entity %q", p.tenant, p.entity) }

// atoms are what names are made of.
var atoms = []string{"a", "b", "1", "2", "acme", "9821", "v3", "p7", ":", "%", "%3A", "%2", "/", "-", "_", ".", "#", "|", "é", "0"}

// names makes n different pairs: made up, and some that one joined string could be split into.
func names(n int) []pair {
	r := rand.New(rand.NewPCG(1, 2)) // the same each time: a failure must come again
	word := func() string {
		var b strings.Builder
		for range 1 + r.IntN(3) {
			b.WriteString(atoms[r.IntN(len(atoms))])
		}
		return b.String()
	}
	seen := map[pair]bool{}
	var all []pair
	add := func(p pair) {
		if p.tenant != "" && p.entity != "" && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for len(all) < n {
		x, y := word(), word()
		add(pair{x, y})
		add(pair{y, x})
		add(pair{"globex", y})
		whole := x + y
		for i := 1; i < len(whole); i++ {
			if strings.ToValidUTF8(whole[:i], "") == whole[:i] && strings.ToValidUTF8(whole[i:], "") == whole[i:] {
				add(pair{whole[:i], whole[i:]})
			}
		}
	}
	return all[:n]
}
