package simulate

import "testing"

// Every mutant is seen: some history of a few hundred shows what is wrong with it, and the same history without it does not.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			for s := uint64(1); s <= 400; s++ {
				o := play(t, s, nil, m)
				if len(o.violations) == 0 {
					continue
				}
				if sound := play(t, s, nil, mutant{}); len(sound.violations) > 0 {
					t.Fatalf("seed %d is broken without the mutant: %q", s, sound.violations)
				}
				small, _ := shrink(t, s, m, o)
				t.Logf("seed %d: %q; %d parts of %d are enough", s, small.violations[0], len(small.parts()), len(o.parts()))
				return
			}
			t.Error("no history shows it")
		})
	}
}
