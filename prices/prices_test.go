package prices

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

func day(t *testing.T, s string) time.Time {
	t.Helper()
	d, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t *testing.T, lines ...string) *Table {
	t.Helper()
	table, err := Read("prices.csv", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const head = "provider,model,from,currency,above,input,cache_read,cache_write,cache_write_1h,output,reasoning,batch,us"

// Every field of the usage has its own price, and empty ones are as the page says.
func TestCost(t *testing.T) {
	table := read(t, head,
		"openai,m,2026-01-01,USD,,1,0.1,1.25,2,10,20,0.5,1.1",
		"openai,plain,2026-01-01,USD,,1,,,,10,,,",
		"openai,writes,2026-01-01,USD,,1,,3,,10,,,",
		"openai,free,2026-01-01,USD,,0,,,,0,,,")
	all := Usage{In: 1000, CacheRead: 400, CacheWrite: 200, CacheWrite1h: 100, Out: 50, Reasoning: 20}
	with := func(terms ...string) Usage { u := all; u.Terms = terms; return u }
	for name, c := range map[string]struct {
		model string
		usage Usage
		want  ledger.Nano
	}{
		// 300 x 1 + 400 x 0.1 + 200 x 1.25 + 100 x 2 + 30 x 10 + 20 x 20, in thousands of nano.
		"everything":                      {"m", all, 1_490_000},
		"half of it":                      {"m", with("batch"), 745_000},
		"and elsewhere":                   {"m", with("batch", "us"), 819_500},
		"no columns":                      {"plain", all, 1_500_000},
		"an hour costs as the usual time": {"writes", all, 700_000 + 900_000 + 500_000},
		"nothing used":                    {"m", Usage{}, 0},
		"free":                            {"free", all, 0},
	} {
		got, err := table.Cost(Call{Provider: "OpenAI", Model: c.model, At: day(t, "2026-01-01T00:00:00Z"), Usage: c.usage})
		if err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}

// What nobody can price has no cost, and says why.
func TestUnpriced(t *testing.T) {
	table := read(t, head, "openai,m,2026-01-01,USD,,1,,,,10,,0.5,", "openai,dear,2026-01-01,USD,,1000000,,,,1000000,,,")
	at := day(t, "2026-06-01T12:00:00Z")
	for name, c := range map[string]struct {
		call Call
		want string
	}{
		"model":          {Call{Provider: "openai", Model: "m-mini", At: at}, "openai m-mini is not known: no price is known for the model"},
		"provider":       {Call{Provider: "azure", Model: "m", At: at}, "azure m is not known: no price"},
		"case":           {Call{Provider: "openai", Model: "M", At: at}, "no price is known"},
		"no name":        {Call{Provider: "openai", At: at}, "no price is known"},
		"too early":      {Call{Provider: "openai", Model: "m", At: day(t, "2025-12-31T23:59:59Z")}, "its first price (prices.csv:2) is from 2026-01-01"},
		"no usage":       {Call{Provider: "openai", Model: "m", At: at, NoUsage: true}, "its answer does not say what was used"},
		"term":           {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{Terms: []string{"batch", "audio"}}}, `prices.csv:2 knows no price for "audio"`},
		"term of others": {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{Terms: []string{"us"}}}, `no price for "us"`},
		"cached":         {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{In: 5, CacheRead: 6}}, "contradicts itself"},
		"written":        {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{In: 5, CacheWrite: 3, CacheWrite1h: 3}}, "contradicts itself"},
		"reasoning":      {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{Out: 5, Reasoning: 6}}, "contradicts itself"},
		"negative":       {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{Out: -1}}, "contradicts itself"},
		"negative part":  {Call{Provider: "openai", Model: "m", At: at, Usage: Usage{In: 1, CacheRead: -1}}, "contradicts itself"},
		"over a million": {Call{Provider: "openai", Model: "dear", At: at, Usage: Usage{In: 1_000_001}}, "out of range"},
		"too much":       {Call{Provider: "openai", Model: "dear", At: at, Usage: Usage{In: math.MaxInt64, Out: math.MaxInt64}}, "out of range"},
	} {
		got, err := table.Cost(c.call)
		if err == nil || !strings.HasPrefix(err.Error(), "PO067 the cost of a call to ") || !strings.Contains(err.Error(), c.want) || got != 0 {
			t.Errorf("%s: %d, %v; want %q", name, got, err, c.want)
		}
	}
}

// The price of the day counts, by UTC, whatever zone the clock is in.
func TestDays(t *testing.T) {
	table := read(t, head, "openai,m,2026-07-30,USD,,1,,,,1,,,", "openai,m,2026-01-01,USD,,5,,,,5,,,", "openai,m,2026-09-01,USD,,2,,,,2,,,")
	for at, want := range map[string]ledger.Nano{
		"2026-01-01T00:00:00Z": 5000, "2026-07-29T23:59:59.999999999Z": 5000, "2026-07-30T00:00:00Z": 1000,
		"2026-07-30T01:59:00+02:00": 5000, "2026-07-29T22:00:00-02:00": 1000, "2026-08-31T23:59:59Z": 1000, "2026-09-01T00:00:00Z": 2000,
		"2030-01-01T00:00:00Z": 2000,
	} {
		got, err := table.Cost(Call{Provider: "openai", Model: "m", At: day(t, at), Usage: Usage{In: 1}})
		if err != nil || got != want {
			t.Errorf("at %s: %d, %v; want %d", at, got, err, want)
		}
	}
}

// A long request has its own price, for all its tokens, as long as that day's prices know one.
func TestThresholds(t *testing.T) {
	table := read(t, head, "openai,m,2026-01-01,USD,500,4,,,,40,,,", "openai,m,2026-01-01,USD,,1,,,,10,,,", "openai,m,2026-01-01,USD,200,2,,,,20,,,",
		"openai,m,2026-02-01,USD,,3,,,,30,,,")
	for _, c := range []struct {
		at   string
		in   int64
		want ledger.Nano
	}{
		{"2026-01-01", 0, 10_000}, {"2026-01-01", 200, 210_000}, {"2026-01-01", 201, 422_000}, {"2026-01-01", 500, 1_020_000},
		{"2026-01-01", 501, 2_044_000}, {"2026-02-01", 501, 1_533_000},
	} {
		got, err := table.Cost(Call{Provider: "openai", Model: "m", At: day(t, c.at+"T00:00:00Z"), Usage: Usage{In: c.in, Out: 1}})
		if err != nil || got != c.want {
			t.Errorf("%d tokens on %s: %d, %v; want %d", c.in, c.at, got, err, c.want)
		}
	}
}

// A name is matched as it is, then without the date of its snapshot, and never otherwise.
func TestNames(t *testing.T) {
	table := read(t, head, "openai,m,2026-01-01,USD,,1,,,,1,,,", "openai,m-2024-05-13,2024-05-13,USD,,5,,,,5,,,", "openai,deployed,2026-01-01,USD,,7,,,,7,,,")
	for _, c := range []struct {
		route, answered string
		want            ledger.Nano // 0: none
	}{
		{"m", "", 1000}, {"m-2025-08-07", "", 1000}, {"m-20250807", "", 1000}, {"m-2024-05-13", "", 5000}, {"m-20240513", "", 1000},
		{"alias", "m-2025-08-07", 1000}, {"deployed", "m-2024-05-13", 7000}, {"alias", "m-2024-05-13", 5000},
		{"m-2025-13-07", "", 0}, {"m-20251307", "", 0}, {"m-2025-08", "", 0}, {"m-latest", "", 0}, {"m2025-08-07", "", 0}, {"-2025-08-07", "", 0},
		{"m-2025-08-07-2025-08-07", "", 0}, {"gateway/m", "", 0}, {"m-", "", 0}, {"alias", "", 0},
	} {
		got, err := table.Cost(Call{Provider: "openai", Model: c.route, Answered: c.answered, At: day(t, "2026-06-01T00:00:00Z"), Usage: Usage{In: 1}})
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s, answered %q: %d, %v; want %d", c.route, c.answered, got, err, c.want)
		}
	}
}

// Half a nano-dollar and more is rounded up, once for the whole attempt.
func TestRounding(t *testing.T) {
	table := read(t, "provider,model,from,currency,input,cache_read,output,batch",
		"openai,m,2026-01-01,USD,0.0014,0.0012,0.001499999,0.5", "openai,third,2026-01-01,USD,1,,1,0.333333333")
	for _, c := range []struct {
		model string
		usage Usage
		want  ledger.Nano
	}{
		{"m", Usage{In: 1}, 1}, {"m", Usage{In: 5}, 7}, {"m", Usage{Out: 1}, 1}, {"m", Usage{Out: 2}, 3}, {"m", Usage{Out: 1000}, 1500},
		// Rounded one by one this would be 1 + 1.
		{"m", Usage{In: 2, CacheRead: 1}, 3},
		{"m", Usage{In: 1, Terms: []string{"batch"}}, 1}, {"m", Usage{Out: 1, Terms: []string{"batch"}}, 1},
		{"m", Usage{CacheRead: 1, In: 1, Terms: []string{"batch"}}, 1}, {"third", Usage{In: 1, Terms: []string{"batch"}}, 333},
	} {
		got, err := table.Cost(Call{Provider: "openai", Model: c.model, At: day(t, "2026-06-01T00:00:00Z"), Usage: c.usage})
		if err != nil || got != c.want {
			t.Errorf("%s %+v: %d, %v; want %d", c.model, c.usage, got, err, c.want)
		}
	}
}

// TestProperties compares with rational numbers: a cost is the exact one to half a nano-dollar, it is
// half up, it does not change with the order of terms, and more tokens never cost less.
func TestProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rate := func() ledger.Nano { return ledger.Nano(rnd.Int64N(1 << rnd.IntN(40))) }
	count := func() int64 { return rnd.Int64N(1 << rnd.IntN(30)) }
	for range 20_000 {
		p := Price{Input: rate(), CacheRead: rate(), CacheWrite: rate(), CacheWrite1h: rate(), Output: rate(), Reasoning: rate(),
			Factors: map[string]Factor{"batch": Factor(1 + rnd.Int64N(3_000_000_000)), "us": Factor(1 + rnd.Int64N(3_000_000_000))}}
		table := &Table{models: map[model][]Price{{"p", "m"}: {p}}}
		parts := []int64{count(), count(), count(), count(), count(), count()}
		u := Usage{In: parts[0] + parts[1] + parts[2] + parts[3], CacheRead: parts[1], CacheWrite: parts[2], CacheWrite1h: parts[3], Out: parts[4] + parts[5], Reasoning: parts[5]}
		u.Terms = [][]string{nil, {"batch"}, {"us"}, {"batch", "us"}}[rnd.IntN(4)]
		cost := func(u Usage) ledger.Nano {
			n, err := table.Cost(Call{Provider: "p", Model: "m", Usage: u})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		exact := new(big.Rat)
		for i, r := range []ledger.Nano{p.Input, p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.Output, p.Reasoning} {
			exact.Add(exact, new(big.Rat).Mul(big.NewRat(parts[i], 1_000_000), big.NewRat(int64(r), 1)))
		}
		for _, term := range u.Terms {
			exact.Mul(exact, big.NewRat(int64(p.Factors[term]), 1_000_000_000))
		}
		got := cost(u)
		off := new(big.Rat).Sub(big.NewRat(int64(got), 1), exact) // in (-1/2, 1/2]
		if half := big.NewRat(1, 2); off.Cmp(half) > 0 || off.Cmp(new(big.Rat).Neg(half)) <= 0 {
			t.Fatalf("%+v by %+v cost %d, exactly %s", u, p, got, exact.FloatString(12))
		}
		turned := u
		turned.Terms = slices.Clone(u.Terms)
		slices.Reverse(turned.Terms)
		more := u
		more.In++
		if cost(turned) != got || cost(more) < got {
			t.Fatalf("%+v by %+v cost %d, %d with its terms turned round, %d with a token more", u, p, got, cost(turned), cost(more))
		}
	}
}

// A model of the other table is priced by it alone, with all its days; neither table changes.
func TestWith(t *testing.T) {
	base := read(t, head, "openai,m,2026-01-01,USD,,1,,,,1,,,", "openai,m,2026-02-01,USD,,2,,,,2,,,", "openai,n,2026-01-01,USD,,3,,,,3,,,")
	mine := read(t, head, "openai,m,2026-01-15,USD,,9,,,,9,,,", "azure,m,2026-01-01,USD,,8,,,,8,,,")
	both := base.With(mine)
	for _, c := range []struct {
		table           *Table
		provider, model string
		want            ledger.Nano
	}{
		{both, "openai", "m", 9000}, {both, "openai", "n", 3000}, {both, "azure", "m", 8000}, {base, "openai", "m", 2000}, {base, "azure", "m", 0}, {mine, "openai", "n", 0},
	} {
		got, _ := c.table.Cost(Call{Provider: c.provider, Model: c.model, At: day(t, "2026-03-01T00:00:00Z"), Usage: Usage{In: 1}})
		if got != c.want {
			t.Errorf("%s %s costs %d, want %d", c.provider, c.model, got, c.want)
		}
	}
	var list []string
	for _, p := range both.Prices() {
		list = append(list, p.Provider+" "+p.Model+" "+p.From.Format(time.DateOnly)+" "+p.Source)
	}
	if want := []string{"azure m 2026-01-01 prices.csv:3", "openai m 2026-01-15 prices.csv:2", "openai n 2026-01-01 prices.csv:4"}; !slices.Equal(list, want) {
		t.Errorf("listed %q, want %q", list, want)
	}
	if err := both.Has("azure", "m-2026-01-01", day(t, "2026-03-01T00:00:00Z")); err != nil {
		t.Error(err)
	}
	if err := both.Has("azure", "n", day(t, "2026-03-01T00:00:00Z")); err == nil {
		t.Error("azure has a price for n")
	}
}

// The built-in table reads, is of its day, and says what the providers' pages say of some models.
func TestBuiltin(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Builtin().Prices() {
		seen[p.Provider] = true
		announced := p.Model == "claude-sonnet-5" && p.From.Equal(day(t, "2026-09-01T00:00:00Z"))
		if p.From.After(AsOf) && !announced || p.Source != "built-in" {
			t.Errorf("%s %s: from %s, of %s", p.Provider, p.Model, p.From, p.Source)
		}
		if p.Input == 0 || p.Output < p.Input || p.CacheRead > p.Input || p.CacheWrite < p.Input || p.CacheWrite1h < p.CacheWrite {
			t.Errorf("%s %s: a price is out of order: %+v", p.Provider, p.Model, p)
		}
	}
	if !seen["openai"] || !seen["anthropic"] {
		t.Errorf("the table has %v", seen)
	}
	for _, c := range []struct {
		provider, model string
		usage           Usage
		want            string
	}{
		{"openai", "gpt-5-mini-2025-08-07", Usage{In: 1_000_000, CacheRead: 200_000, Out: 100_000}, "0.405"},
		{"openai", "gpt-5-mini", Usage{In: 1_000_000, Terms: []string{"priority"}}, "0.45"},
		{"openai", "gpt-5", Usage{In: 1_000_000, Out: 1_000_000, Terms: []string{"flex"}}, "5.625"},
		{"openai", "gpt-5.6-luna", Usage{In: 272_001}, "0.1088004"},
		{"anthropic", "claude-haiku-4-5-20251001", Usage{In: 1_000_000, CacheRead: 300_000, CacheWrite: 200_000, CacheWrite1h: 100_000, Out: 10_000}, "0.93"},
		{"anthropic", "claude-sonnet-5-20260701", Usage{In: 1_000_000, CacheRead: 500_000, Out: 100_000}, "2.1"},
		{"openai", "gpt-5.4-pro-2026-03-05", Usage{In: 300_000, Out: 1_000}, "18.27"},
		{"anthropic", "claude-opus-4-6", Usage{In: 1_000_000, Out: 1_000, Terms: []string{"batch", "us"}}, "2.76375"},
	} {
		got, err := Builtin().Cost(Call{Provider: c.provider, Model: c.model, At: AsOf, Usage: c.usage})
		if err != nil || got.String() != c.want {
			t.Errorf("%s %+v: %s, %v; want %s", c.model, c.usage, got, err, c.want)
		}
	}
}
