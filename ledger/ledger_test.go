package ledger

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTableIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, tr := range Transitions() {
		if seen[tr.ID] || tr.ID == "" || tr.Name == "" || len(tr.By) == 0 {
			t.Errorf("transition %+v has no name, no actor, or the id of another", tr)
		}
		seen[tr.ID] = true
		if Row(tr.ID).Name != tr.Name {
			t.Errorf("Row(%s) is another transition", tr.ID)
		}
		for _, s := range append(slices.Clone(tr.From), tr.To) {
			if s != "" && !slices.Contains(States(), s) {
				t.Errorf("%s: %q is no state", tr.ID, s)
			}
		}
		names := map[string]bool{}
		for _, g := range tr.Guards {
			if names[g.Name] || g.Name == "" || g.Name == "state" || g.Holds == nil {
				t.Errorf("%s: guard %q has no name, the name of another, or no condition", tr.ID, g.Name)
			}
			names[g.Name] = true
		}
	}
}

// A done job stays done, nothing leaves a terminal state but by a person's order, and whatever changes the
// owner of a job that may be owned grows the fence: else an old owner could go on.
func TestTableKeepsItsPromises(t *testing.T) {
	keepsFence := map[string]string{
		"J2x": "nobody owned it", "J10": "the owner ends its own run", "J11": "the owner ends its own run", "J12": "the owner ends its own run",
		"J16": "the next claim grows it", "J17": "a verdict on what was read", "J19": "nobody runs it", "J19b": "the owner ends its own run",
		"J18": "nobody owns it, and the next claim grows it", "J18r": "nobody owns it, and the next claim grows it",
		"J18w": "nobody owns it, and the next claim grows it",
	}
	for _, tr := range Transitions() {
		for _, s := range tr.From {
			if s.Terminal() && tr.To != "" && !slices.Equal(tr.By, []Actor{ByPerson}) {
				t.Errorf("%s leaves %s", tr.ID, s)
			}
		}
		if tr.To == "" {
			continue
		}
		if _, ok := keepsFence[tr.ID]; tr.Fence == ok {
			t.Errorf("%s: the fence grows: %v", tr.ID, tr.Fence)
		}
		if tr.To == Unknown && !slices.ContainsFunc(tr.Guards, func(g Guard) bool { return g.Name == "some_open" }) {
			t.Errorf("%s makes a job unknown without an open call", tr.ID)
		}
		openOK := slices.ContainsFunc(tr.Guards, func(g Guard) bool { return g.Name == "none_open" }) || slices.Contains([]State{Unknown}, tr.To) ||
			strings.Contains(tr.Sets, "open_calls 0") || len(tr.From) == 0 || !slices.ContainsFunc(tr.From, func(s State) bool { return s != Ready && !s.Terminal() })
		if !openOK {
			t.Errorf("%s leads to %s and says nothing of open calls", tr.ID, tr.To)
		}
	}
}

// TestTableIsDecided tries every combination of facts: of the transitions that one verb
// chooses from, at most one is allowed.
func TestTableIsDecided(t *testing.T) {
	verbs := map[string][]string{
		"claim":   {"J1", "J2", "J2x", "J3", "J3x", "J4", "J19c"}, // J5 goes before them
		"release": {"J11", "J13", "J19b"}, "fail": {"J12", "J13", "J19b"},
		"replay": {"J16", "J16o"}, "sweep": {"J4", "J19c"}, "cancel": {"J19", "J19f"},
	}
	flags := func(bits, i int) bool { return bits>>i&1 == 1 }
	for verb, ids := range verbs {
		var rows []Transition
		for _, id := range ids {
			rows = append(rows, Row(id))
		}
		for _, state := range append(States(), "") {
			for bits := range 1 << 15 {
				f := Facts{Exists: state != "", State: state, Cancel: flags(bits, 0), FenceHeld: flags(bits, 1), SameInput: flags(bits, 2),
					Due: flags(bits, 3), RunsLeft: flags(bits, 4), Lapsed: flags(bits, 5), InBudget: flags(bits, 6), ReplayLeft: flags(bits, 7),
					Held: flags(bits, 8), PastRoutes: flags(bits, 9), InputKept: flags(bits, 10), LateSeen: flags(bits, 11),
					CallsLeft: flags(bits, 13), InLifetime: flags(bits, 14)}
				if flags(bits, 12) {
					f.OpenCalls = 2
				}
				var allowed []string
				for _, r := range rows {
					if r.Allows(f) == "" {
						allowed = append(allowed, r.ID)
					}
				}
				if len(allowed) > 1 {
					t.Fatalf("%s: %v are all allowed for %+v", verb, allowed, f)
				}
			}
		}
	}
}

func TestRowPanicsOnAnUnknownID(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Row returned for a transition that does not exist")
		}
	}()
	Row("J99")
}

func TestMoneyReadsWhatItPrints(t *testing.T) {
	for n, text := range map[Nano]string{0: "0", 1: "0.000000001", -1: "-0.000000001", USD: "1", 12 * USD: "12", USD / 4: "0.25", -USD / 2: "-0.5",
		1_234_000: "0.001234", math.MaxInt64: "9223372036.854775807", -math.MaxInt64: "-9223372036.854775807"} {
		if n.String() != text {
			t.Errorf("%d prints as %s, want %s", int64(n), n, text)
		}
		if got, err := ParseUSD(text); got != n || err != nil {
			t.Errorf("%s reads as %d %v, want %d", text, int64(got), err, int64(n))
		}
	}
	if s := Nano(math.MinInt64).String(); s != "-9223372036.854775808" {
		t.Errorf("the smallest amount prints as %s", s)
	}
	for in, want := range map[string]Nano{"007": 7 * USD, "1.50": 3 * USD / 2, "-0": 0, "0.000000000": 0} {
		if got, err := ParseUSD(in); got != want || err != nil {
			t.Errorf("%q reads as %s %v, want %s", in, got, err, want)
		}
	}
}

func TestMoneyRefuses(t *testing.T) {
	for _, in := range []string{"", "-", ".", "1.", ".5", "+1", "--1", "1e3", "0x1", "1,5", "1_000", " 1", "1 ", "1.0000000001", "1.-5", "NaN", "Inf", "١",
		"9223372036.854775808", "9223372037", "99999999999999999999", "-9223372036.854775808", "1.2.3", "$1"} {
		if got, err := ParseUSD(in); err == nil || !strings.HasPrefix(err.Error(), "PO220 ") {
			t.Errorf("%q reads as %s with error %v, want PO220", in, got, err)
		}
	}
}

func TestMoneyIsAStringInJSON(t *testing.T) {
	type bill struct{ Cost, Unknown *Nano }
	b, err := json.Marshal(bill{Cost: new(Nano(1_234_000))})
	if err != nil || string(b) != `{"Cost":"0.001234","Unknown":null}` {
		t.Errorf("marshals as %s %v", b, err)
	}
	var got bill
	if err := json.Unmarshal(b, &got); err != nil || *got.Cost != 1_234_000 || got.Unknown != nil {
		t.Errorf("reads as %+v %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"Cost":"a lot"}`), &got); err == nil {
		t.Error("an amount that is none was read")
	}
}

func FuzzMoney(f *testing.F) {
	for _, n := range []int64{0, 1, -1, math.MaxInt64, -math.MaxInt64, int64(USD)} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		if n == math.MinInt64 {
			return // prints, but no cost is that small: ParseUSD refuses it
		}
		if got, err := ParseUSD(Nano(n).String()); int64(got) != n || err != nil {
			t.Errorf("%d prints as %s, which reads as %d %v", n, Nano(n), int64(got), err)
		}
	})
}

func TestID(t *testing.T) {
	seen := map[ID]bool{}
	for range 1000 {
		id := NewID()
		if s := id.String(); seen[id] || id.IsZero() || len(s) != 36 || s[14] != '4' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Fatalf("%s is no new version 4 UUID", id)
		}
		seen[id] = true
		if got, err := ParseID(id.String()); got != id || err != nil {
			t.Fatalf("%s reads as %s %v", id, got, err)
		}
	}
	good := NewID().String()
	for _, bad := range []string{"", good[:35], good + "0", strings.ReplaceAll(good, "-", "_"), "g" + good[1:], strings.ReplaceAll(good, "-", ""),
		good[:9] + "-" + good[10:], "{" + good[1:35] + "}"} {
		if _, err := ParseID(bad); err == nil || !strings.HasPrefix(err.Error(), "PO221 ") {
			t.Errorf("%q: error %v, want PO221", bad, err)
		}
	}
}

func TestVerdictsHaveLabels(t *testing.T) {
	seen := map[string]bool{}
	for v := Run; v <= Mismatch; v++ {
		if s := v.String(); s == "" || s == "invalid" || seen[s] {
			t.Errorf("verdict %d prints as %q", v, s)
		}
		seen[v.String()] = true
	}
	for _, v := range []Verdict{-1, 0, Mismatch + 1} {
		if v.String() != "invalid" {
			t.Errorf("verdict %d prints as %q", v, v)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{"": "", "plain": "plain", "a\x00b": "a\ufffdb", "\xff\xfe": "\ufffd", "é\u0000\xc3": "é\ufffd\ufffd", "世界\n": "世界\n"} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) is %q, want %q", in, got, want)
		}
	}
}

func TestChecksAcceptWhatIsUsual(t *testing.T) {
	r := Request{Key: Key{Tenant: "acme", Text: "acme:a:1"}, Action: "a", Worker: WorkerID{ID: "w", Epoch: 1}, Token: NewID(), MaxRun: time.Hour}
	for what, err := range map[string]error{
		"request": r.Check(), "attempt": Attempt{ID: NewID(), Call: CallRef{Name: "c"}}.Check(),
		"evidence": Evidence{State: NotSent, By: BySender}.Check(), "worker": Worker{ID: "w", TTL: 1}.Check(), "result": Result{ID: NewID()}.Check(),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.Token = ID{}
	if err := r.Check(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "token") {
		t.Errorf("a request without a token: %v", err)
	}
}

func TestBudgetSumsDoNotOverflow(t *testing.T) {
	for _, c := range []struct {
		budget         Nano
		cost           *Nano
		reserved, more Nano
		want           bool
	}{
		{0, nil, math.MaxInt64, math.MaxInt64, true}, // no budget
		{3, nil, 1, 2, true},
		{3, nil, 1, 3, false},
		{3, new(Nano(1)), 1, 1, true},
		{3, new(Nano(1)), 1, 2, false},
		{3, new(Nano(5)), 0, 0, false},
		{USD, new(Nano(1)), 1, math.MaxInt64, false},
	} {
		if got := InBudget(c.budget, c.cost, c.reserved, c.more); got != c.want {
			t.Errorf("budget %d, cost %v, reserved %d, %d more: %v", c.budget, c.cost, c.reserved, c.more, got)
		}
	}
}

func TestPurgeRests(t *testing.T) {
	for _, c := range []struct {
		step       PurgeStep
		took, rest time.Duration
	}{
		{PurgeStep{Keys: 1}, 30 * time.Millisecond, 30 * time.Millisecond},
		{PurgeStep{Moved: 1}, time.Minute, time.Second},
		{PurgeStep{Partition: "result_20260101"}, 20 * time.Millisecond, time.Minute},
		{PurgeStep{Partition: "result_20260101", InUse: true}, time.Minute, time.Second}, // nothing was dropped
	} {
		if got := c.step.Rest(c.took); got != c.rest {
			t.Errorf("%+v took %s: rests for %s, want %s", c.step, c.took, got, c.rest)
		}
	}
}
