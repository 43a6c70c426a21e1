package consumer

import (
	"slices"
	"testing"
)

// TestRecent: the last few ids are known, each once.
func TestRecent(t *testing.T) {
	r := newRecent(3)
	for _, c := range []struct {
		add  string
		want []string
	}{
		{"a", []string{"a"}}, {"", []string{"a"}}, {"b", []string{"a", "b"}}, {"a", []string{"a", "b"}}, {"c", []string{"a", "b", "c"}},
		{"d", []string{"b", "c", "d"}}, {"b", []string{"b", "c", "d"}}, {"e", []string{"c", "d", "e"}}, {"a", []string{"a", "d", "e"}},
	} {
		r.add(c.add)
		var got []string
		for _, id := range []string{"", "a", "b", "c", "d", "e"} {
			if r.has(id) {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("after %q: %v, want %v", c.add, got, c.want)
		}
	}
}
