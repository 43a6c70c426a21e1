package prices

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

const short = "provider,model,from,currency,input,output\n"

// Every kind of fault, as it is printed; all of a file are found at once.
func TestFaults(t *testing.T) {
	long := strings.Repeat("m", 201)
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"nothing":     {"", []string{"PO060 (prices.csv): it is empty; its first line names the columns: " + strings.Join(columns, ",")}},
		"comments":    {"# a\n\n#b\n", []string{"PO060 (prices.csv): it is empty; its first line names the columns: " + strings.Join(columns, ",")}},
		"no prices":   {short, []string{"PO060 (prices.csv): it has no prices; write one a line below the names of the columns"}},
		"semicolons":  {"provider;model;from\n", []string{"PO060 (prices.csv:1:1): columns are separated by commas, not semicolons"}},
		"quotes":      {short + "openai,\"m,2026-01-01,USD,1,1\n", []string{`PO060 (prices.csv:2:30): not comma-separated: extraneous or missing " in quoted-field; what follows was not read`}},
		"first quote": {"provider,\"model\n", []string{`PO060 (prices.csv:1:17): not comma-separated: extraneous or missing " in quoted-field; what follows was not read`}},
		"columns": {"provider,model,from,currency,input,input,Output\n", []string{
			"PO061 input (prices.csv:1:36): the column stands there twice",
			"PO061 Output (prices.csv:1:42): there is no such column; there are " + strings.Join(columns, ", "),
			"PO061 output (prices.csv:1:1): the column is missing; the first line of the file names the columns"}},
		"no header": {"openai,m,2026-01-01,USD,1,1\n", []string{
			"PO061 (prices.csv:1:1): the first line does not name the columns; put one above it: provider,model,"}},
		"decimal comma": {short + "openai,m,2026-01-01,USD,0,25,1\n", []string{"PO060 (prices.csv:2:1): the line has 7 fields and the first one has 6; is there a decimal comma?"}},
		"names": {short + ",a b,2026-01-01,USD,1,1\nopenai," + long + ",2026-01-01,USD,1,1\n", []string{
			"PO062 provider (prices.csv:2:1): write the name as the route has it: without spaces, and no longer than 200 bytes",
			"PO062 model a b (prices.csv:2:2): write the name", "PO062 model " + long + " (prices.csv:3:8): write the name"}},
		"days": {short + "openai,m,01.01.2026,USD,1,1\nopenai,m,2026-02-30,USD,1,1\nopenai,m,,USD,1,1\n", []string{
			"PO062 from 01.01.2026 (prices.csv:2:10): write the first day as 2025-08-07; it counts from midnight UTC on",
			"PO062 from 2026-02-30 (prices.csv:3:10): write the first day", "PO062 from (prices.csv:4:10): write the first day"}},
		"currency": {short + "openai,m,2026-01-01,EUR,1,1\nopenai,n,2026-01-01,,1,1\nopenai,o,2026-01-01,usd,1,1\n", []string{
			"PO064 currency EUR (prices.csv:2:21): prices are in US dollars; convert them and write USD", "PO064 currency (prices.csv:3:21)", "PO064 currency usd (prices.csv:4:21)"}},
		"prices": {short + "openai,a,2026-01-01,USD,-1,1e3\nopenai,b,2026-01-01,USD,\"0,25\",$1\nopenai,c,2026-01-01,USD,.5,1.0000000001\nopenai,d,2026-01-01,USD,,+1\n" +
			"openai,e,2026-01-01,USD,0.00000025,2000000\nopenai,f,2026-01-01,USD,-0,NaN\nopenai,g,2026-01-01,USD,99999999999999999999,1.\n", []string{
			"PO063 input -1 (prices.csv:2:25): write US dollars per million tokens, in digits with up to nine decimals, such as 0.25", "PO063 output 1e3 (prices.csv:2:28): write",
			"PO063 input 0,25 (prices.csv:3:25): write", "PO063 output $1 (prices.csv:3:32): write", "PO063 input .5 (prices.csv:4:25): write", "PO063 output 1.0000000001 (prices.csv:4:28): write",
			"PO063 input (prices.csv:5:25): write", "PO063 output +1 (prices.csv:5:26): write",
			"PO063 input 0.00000025 (prices.csv:6:25): that is next to nothing for a million tokens; is it the price of one? Prices are per million tokens",
			"PO063 output 2000000 (prices.csv:6:36): that is more than a dollar a token; prices are US dollars per million tokens",
			"PO063 input -0 (prices.csv:7:25): write", "PO063 output NaN (prices.csv:7:28): write", "PO063 input 99999999999999999999 (prices.csv:8:25): write", "PO063 output 1. (prices.csv:8:46): write"}},
		"factors": {"provider,model,from,currency,above,input,output,batch,us\nopenai,m,2026-01-01,USD,0,1,1,50,0\nopenai,n,2026-01-01,USD,200k,1,1,half,-1\n", []string{
			"PO062 above 0 (prices.csv:2:25): write a whole number of tokens, such as 200000, or nothing",
			"PO063 batch 50 (prices.csv:2:31): write what the price is multiplied by: 0.5 for half, at most 10", "PO063 us 0 (prices.csv:2:34): write",
			"PO062 above 200k (prices.csv:3:25): write", "PO063 batch half (prices.csv:3:34): write", "PO063 us -1 (prices.csv:3:39): write"}},
		"overlap": {short + "openai,m,2026-01-01,USD,1,1\nOpenAI,m,2026-01-01,USD,2,2\nopenai,m,2026-01-02,USD,2,2\n", []string{
			"PO065 openai m (prices.csv:3:1): line 2 has a price from the same day on already; nobody could say which one counts"}},
		"no base": {"provider,model,from,currency,above,input,output\nopenai,m,2026-01-01,USD,,1,1\nopenai,m,2026-02-01,USD,200000,2,2\nopenai,n,2026-01-01,USD,,x,1\nopenai,n,2026-01-01,USD,5,1,1\n", []string{
			"PO066 openai m (prices.csv:3:1): from 2026-02-01 on there is a price above 200000 tokens and none below; add a line with above left empty",
			"PO063 input x (prices.csv:4:26): write"}},
	} {
		table, err := Read("prices.csv", strings.NewReader(c.file))
		faults, _ := errors.AsType[Faults](err)
		if table != nil || len(faults) != len(c.want) {
			t.Errorf("%s: %v, want %d faults", name, err, len(c.want))
			continue
		}
		for i, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, c.want[i]) {
				t.Errorf("%s: fault %d is\n%s, want\n%s", name, i, line, c.want[i])
			}
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

func TestUnreadable(t *testing.T) {
	for want, r := range map[string]io.Reader{
		"PO060 (prices.csv): the file of prices cannot be read: the disk is gone": broken{},
		"PO060 (prices.csv): it is larger than 4 MiB, which no file of prices is": endless{},
	} {
		if _, err := Read("prices.csv", r); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What spreadsheets and editors leave in a file does no harm.
func TestForms(t *testing.T) {
	for name, file := range map[string]string{
		"mark and line ends": "\ufeff" + strings.ReplaceAll(short+"openai,m,2026-01-01,USD,1,2\n", "\n", "\r\n"),
		"spaces":             "provider , model, from, currency, input, output\n openai , m , 2026-01-01 , USD , 1 , 2 \n",
		"quotes":             short + "\"openai\",\"m\",\"2026-01-01\",\"USD\",\"1\",\"2\"\n",
		"order, no end":      "# mine\noutput,input,currency,from,model,provider\n\n# a\n2.000000000,01,USD,2026-01-01,m,OPENAI",
	} {
		table, err := Read("prices.csv", strings.NewReader(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := table.Prices()[0]
		if got := fmt.Sprintln(p.Provider, p.Model, p.From.Format(time.DateOnly), p.Input, p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.Output, p.Reasoning, p.Factors); strings.TrimSpace(got) != "openai m 2026-01-01 1 1 1 1 2 2 map[]" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// FuzzRead: nothing in a file is a reason to panic; a file either has faults, each with its code and
// place, or every price of it is within the limits and can be found by its own name and day.
func FuzzRead(f *testing.F) {
	f.Add(builtinText)
	f.Add(short + "openai,m,2026-01-01,USD,1,1\n")
	f.Add("provider,model,from,currency,above,input,output,batch\nopenai,m-2026-01-01,2026-01-01,USD,,0.001,1000000,10\nopenai,m-2026-01-01,2026-01-01,USD,9223372036854775807,1,1,\n")
	f.Fuzz(func(t *testing.T, file string) {
		table, err := Read("f", strings.NewReader(file))
		if err != nil {
			faults, ok := errors.AsType[Faults](err)
			if !ok || len(faults) == 0 || table != nil {
				t.Fatalf("%v, %v", table, err)
			}
			for _, x := range faults {
				if !strings.HasPrefix(x.Code, "PO06") || x.Text == "" || x.Line < 0 || x.Line > strings.Count(file, "\n")+2 {
					t.Fatalf("%+v", x)
				}
			}
			return
		}
		all := table.Prices()
		if len(all) == 0 {
			t.Fatal("no prices, and no fault")
		}
		for _, p := range all {
			for _, n := range []int64{int64(p.Input), int64(p.CacheRead), int64(p.CacheWrite), int64(p.CacheWrite1h), int64(p.Output), int64(p.Reasoning)} {
				if n < 0 || n > int64(mostRate) || n > 0 && n < int64(leastRate) {
					t.Fatalf("%+v", p)
				}
			}
			u := Usage{In: p.Above, Out: 1}
			if p.Above > 0 && p.Above < 1<<62 {
				u.In++
			}
			got, err := table.find(Call{Provider: p.Provider, Model: p.Model, At: p.From, Usage: u})
			if err != nil || u.In > p.Above && got.Source != p.Source {
				t.Fatalf("%+v is found as %+v, %v", p, got, err)
			}
		}
		if !slices.IsSortedFunc(all, func(a, b Price) int { return strings.Compare(a.Provider, b.Provider) }) {
			t.Fatal("not sorted")
		}
	})
}
