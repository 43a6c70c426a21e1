package audit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/audit"
	"github.com/paidonce/paidonce/ledger"
)

// log is a source of these lines.
func log(name, text string) audit.Source {
	return audit.Source{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func options() audit.Options { return audit.Options{Fields: audit.DefaultFields(), Top: 5} }

// run audits one log that has to be readable.
func run(t *testing.T, o audit.Options, text string) *audit.Report {
	t.Helper()
	r, err := audit.Run(t.Context(), []audit.Source{log("a.jsonl", text)}, o)
	if err != nil {
		t.Fatal(err)
	}
	if sum := r.Distinct + r.Repeated + r.Failed + r.Unknown + r.Cached + r.Unidentified; sum != r.Calls {
		t.Errorf("%d calls, but the kinds of them add up to %d: %+v", r.Calls, sum, r)
	}
	if sum := r.Calls + r.LoggedAgain + r.OtherLines + r.BadLines; sum != r.Lines {
		t.Errorf("%d lines, but the kinds of them add up to %d: %+v", r.Lines, sum, r)
	}
	return r
}

func usd(t *testing.T, s string) *ledger.Nano {
	t.Helper()
	n, err := ledger.ParseUSD(s)
	if err != nil {
		t.Fatal(err)
	}
	return &n
}

const twice = `{"ts":"2026-11-02T08:00:00Z","job":"sum","entity":"1","input":"x","cost":"0.001"}
{"ts":"2026-11-02T08:00:30Z","job":"sum","entity":"1","input":"x","cost":0.002}
{"ts":"2026-11-02T09:00:00Z","job":"sum","entity":"2","input":"x","cost":"0.004"}
`

func TestWholeReport(t *testing.T) {
	at := func(s string) *time.Time {
		v, err := time.Parse(time.RFC3339, "2026-11-02T"+s+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	r := run(t, options(), twice)
	waste := audit.Waste{Repeated: 1, Wasted: audit.Wasted{WastedUSD: usd(t, "0.002")}}
	offender := audit.Offender{Hash: r.Top[0].Hash, Job: "sum", Entity: "1", Count: 2, Waste: waste, FirstAt: at("08:00:00"), LastAt: at("08:00:30")}
	want := &audit.Report{Calls: 3, Distinct: 2, Repeated: 1, Wasted: waste.Wasted, SpentUSD: usd(t, "0.007"), Lines: 3, FirstAt: at("08:00:00"), LastAt: at("09:00:00"),
		Patterns: []audit.Pattern{{Kind: audit.Later, Waste: waste, Text: "no pattern: redrives, re-runs, people asking again"}},
		Jobs:     []audit.Job{{Job: "sum", Calls: 3, Waste: waste}}, Top: []audit.Offender{offender}, TopByCost: []audit.Offender{offender},
		Fields: []audit.Field{{"cost", "cost", 3}, {"entity", "entity", 3}, {"input", "input", 3}, {"job", "job", 3}, {"time", "ts", 3}}, Faults: []audit.Fault{}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("report\n%+v\nwant\n%+v", r, want)
	}
	if len(r.Top[0].Hash) != 32 {
		t.Errorf("hash %q, want 16 bytes in hex", r.Top[0].Hash)
	}
}

// The second of two lines is a repeat of the first, or is not.
func TestSame(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"order of keys":               {`{"model":"m","input":{"a":1,"b":[2]}}`, `{"input": {"b": [2], "a": 1}, "model": "m"}`, true},
		"another model":               {`{"model":"m","input":"x"}`, `{"model":"n","input":"x"}`, true},
		"another name of a field":     {`{"input":"x"}`, `{"request":{"prompt":"x"}}`, true},
		"a number as a string":        {`{"entity":48213,"input":"x"}`, `{"entity":"48213","input":"x"}`, true},
		"JSON in a string":            {`{"request":{"messages":[1]}}`, `{"request":"{\"messages\":[1]}"}`, true},
		"dots in names":               {`{"gen_ai":{"input.messages":[1]},"model":"m"}`, `{"gen_ai.input.messages":[1],"model":"m"}`, true},
		"escapes":                     {`{"input":"é"}`, `{"input":"\u00e9"}`, true},
		"a field that is there twice": {`{"input":"y","input":"x"}`, `{"input":"x"}`, true},
		"null is absent":              {`{"input":"x","entity":null}`, `{"input":"x"}`, true},
		"no input, one entity":        {`{"model":"m","entity":"1"}`, `{"model":"m","entity":"1"}`, true},
		"another input":               {`{"input":"x"}`, `{"input":"y"}`, false},
		"another element":             {`{"messages":[1,2]}`, `{"messages":[2,1]}`, false},
		"another entity":              {`{"entity":"1","input":"x"}`, `{"entity":"2","input":"x"}`, false},
		"another tenant":              {`{"tenant":"a","entity":"1","input":"x"}`, `{"tenant":"b","entity":"1","input":"x"}`, false},
		"another job":                 {`{"job":"a","input":"x"}`, `{"job":"b","input":"x"}`, false},
		"another prompt version":      {`{"prompt_version":"p1","input":"x"}`, `{"prompt_version":"p2","input":"x"}`, false},
		"another system prompt":       {`{"system":"a","messages":[1]}`, `{"system":"b","messages":[1]}`, false},
		"another way to split":        {`{"tenant":"a/b","entity":"c","input":"x"}`, `{"tenant":"a","entity":"b/c","input":"x"}`, false},
		"an entity as an input":       {`{"entity":"x","input":"y"}`, `{"input":"x","messages":"y"}`, false},
		"digits beyond a float":       {`{"input":{"n":9007199254740993}}`, `{"input":{"n":9007199254740992}}`, false},
	} {
		if r := run(t, options(), c.a+"\n"+c.b); (r.Repeated == 1) != c.same {
			t.Errorf("%s: %d repeats of\n%s\n%s", name, r.Repeated, c.a, c.b)
		}
	}
}

// Three calls about the same: the middle one is as the case says, and only what was paid counts.
func TestOutcomes(t *testing.T) {
	for fields, want := range map[string][4]int64{ // repeated, failed, unknown, cached
		`"status":200`:                             {2, 0, 0, 0},
		`"status":"success"`:                       {2, 0, 0, 0},
		`"error":null`:                             {2, 0, 0, 0},
		`"error":""`:                               {2, 0, 0, 0},
		`"error":false`:                            {2, 0, 0, 0},
		`"cache_hit":false`:                        {2, 0, 0, 0},
		`"status":400`:                             {1, 1, 0, 0},
		`"status":"429"`:                           {1, 1, 0, 0},
		`"status":500,"error":"timeout"`:           {1, 1, 0, 0},
		`"status":"failure"`:                       {1, 1, 0, 0},
		`"error":{"type":"invalid_request_error"}`: {1, 1, 0, 0},
		`"response":{"status":"failed"}`:           {1, 1, 0, 0},
		`"status":504`:                             {1, 0, 1, 0},
		`"status":0`:                               {1, 0, 1, 0},
		`"status":408`:                             {1, 0, 1, 0},
		`"status":524`:                             {1, 0, 1, 0},
		`"error":"Request timed out."`:             {1, 0, 1, 0},
		`"error":{"message":"read: connection reset"}`:                           {1, 0, 1, 0},
		`"status":200,"error":"Unexpected EOF"`:                                  {1, 0, 1, 0},
		`"cache_hit":true`:                                                       {1, 0, 0, 1},
		`"status":{"code":1}`:                                                    {2, 0, 0, 0},
		`"status":{"code":"STATUS_CODE_UNSET"}`:                                  {2, 0, 0, 0},
		`"status":{"message":"no code"}`:                                         {2, 0, 0, 0},
		`"status":{"code":2}`:                                                    {1, 1, 0, 0},
		`"status":{"code":"STATUS_CODE_ERROR"}`:                                  {1, 1, 0, 0},
		`"status":{"status_code":"ERROR","message":"context deadline exceeded"}`: {1, 0, 1, 0},
	} {
		r := run(t, options(), `{"input":"x"}`+"\n"+`{"input":"x",`+fields+"}\n"+`{"input":"x"}`)
		if got := [4]int64{r.Repeated, r.Failed, r.Unknown, r.Cached}; got != want {
			t.Errorf("%s: repeated, failed, unknown, cached %v, want %v", fields, got, want)
		}
	}
}

func TestCosts(t *testing.T) {
	lines := func(costs ...string) string {
		var b strings.Builder
		for _, c := range costs {
			fmt.Fprintf(&b, `{"job":"j","input":"x","usage":{"input_tokens":100,"output_tokens":"20"}%s}`+"\n", c)
		}
		return b.String()
	}
	known, none := `,"cost_usd":1.5e-05`, ""
	for name, c := range map[string]struct {
		log               string
		spent, wasted     *ledger.Nano
		unpriced, wasted0 int64
	}{
		"all known":            {lines(known, known, known), usd(t, "0.000045"), usd(t, "0.00003"), 0, 0},
		"one of the repeats":   {lines(known, known, none), usd(t, "0.00003"), usd(t, "0.000015"), 1, 1},
		"no repeat":            {lines(known, none, none), usd(t, "0.000015"), nil, 2, 2},
		"none":                 {lines(none, none, none), nil, nil, 3, 2},
		"unreadable":           {lines(`,"cost":"free"`, `,"cost":-1`, `,"cost":1e9`), nil, nil, 3, 2},
		"unreadable, then one": {lines(`,"cost":"free","response_cost":1.5e-05`, `,"cost":{},"total_cost":"0.000015"`, known), usd(t, "0.000045"), usd(t, "0.00003"), 0, 0},
		"free":                 {lines(`,"cost":0`, `,"cost":0`, `,"cost":"$0.00"`), usd(t, "0"), usd(t, "0"), 0, 0},
	} {
		r := run(t, options(), c.log)
		if !reflect.DeepEqual(r.SpentUSD, c.spent) || !reflect.DeepEqual(r.WastedUSD, c.wasted) || r.Unpriced != c.unpriced || r.WastedUnpriced != c.wasted0 || r.WastedTokens != 240 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := run(t, options(), `{"input":"x"}`)
	if r.WastedUSD == nil || *r.WastedUSD != 0 {
		t.Errorf("without repeats wasted is %v, want 0", r.WastedUSD)
	}
	o := options()
	o.Price = func(model string, u audit.Usage) (ledger.Nano, bool) {
		return ledger.Nano(u.In + 10*u.Out + 1000*u.Cached), model == "m"
	}
	r = run(t, o, strings.Repeat(`{"model":"m","input":"x","tokens_in":100,"tokens_cached":7,"tokens_out":20}`+"\n", 2)+`{"model":"n","input":"x"}`)
	if *r.SpentUSD != 14600 || *r.WastedUSD != 7300 || r.WastedUnpriced != 1 {
		t.Errorf("priced by a table: %+v", r)
	}
}

// A line with the provider's id of an answer that was seen is about the same call.
func TestLoggedAgain(t *testing.T) {
	line := `{"ts":1762070400,"input":"x","cost":"0.5","response_id":"%s"}` + "\n"
	r := run(t, options(), fmt.Sprintf(line+line+line, "r1", "r1", "r2"))
	if r.LoggedAgain != 1 || r.Calls != 2 || r.Repeated != 1 || *r.SpentUSD != ledger.USD || *r.WastedUSD != ledger.USD/2 {
		t.Errorf("%+v", r)
	}
}

func TestSources(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(twice)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	want := run(t, options(), twice)
	for name, text := range map[string]string{
		"gzip":               zipped.String(),
		"two parts of gzip":  zipped.String() + string(gzipped(t, "")),
		"an array":           "[\n" + strings.ReplaceAll(twice, "\n", ",\n") + "]\n",
		"CRLF":               strings.ReplaceAll(twice, "\n", "\r\n"),
		"byte order mark":    "\xef\xbb\xbf" + twice,
		"no last line's end": strings.TrimSuffix(twice, "\n"),
		"blank lines":        "\n\n" + strings.ReplaceAll(twice, "\n", "\n \n"),
	} {
		if r := run(t, options(), text); !reflect.DeepEqual(r, want) {
			t.Errorf("%s: report\n%+v\nwant\n%+v", name, r, want)
		}
	}
	parts := strings.SplitAfter(twice, "\n")
	r, err := audit.Run(t.Context(), []audit.Source{log("a", parts[0]), log("b", string(gzipped(t, parts[1]))), log("c", parts[2])}, options())
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("three sources: %v, report\n%+v\nwant\n%+v", err, r, want)
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What cannot be read is counted and named, and the rest counts.
func TestBadLines(t *testing.T) {
	long := `{"input":"` + strings.Repeat("x", 17<<20) + `"}`
	big := `{"input":"` + strings.Repeat("x", 10<<20) + `"}`
	text := strings.Join([]string{"garbage", `{"input":"x"}`, `{"input":`, `[1]`, "{\"input\":\"\xe9\"}", long, `{"level":"info","msg":"started"}`, `{"input":"x"}`, "null", strings.Repeat(`{"input":`, 20_000), big}, "\n")
	r, err := audit.Run(t.Context(), []audit.Source{log("a.jsonl", text)}, options())
	if err == nil || err.Error() != "PO565 7 of 11 lines cannot be read, so that the report says little" {
		t.Errorf("error %v", err)
	}
	if r.Lines != 11 || r.BadLines != 7 || r.OtherLines != 1 || r.Calls != 3 || r.Repeated != 1 {
		t.Errorf("%+v", r)
	}
	var at []int64
	for _, f := range r.Faults {
		at = append(at, f.Line)
	}
	if !slices.Equal(at, []int64{1, 3, 4, 5, 6}) || r.Faults[3].Text != "it is not UTF-8" || r.Faults[4].Text != "it is longer than 16 MB" || r.Faults[0].File != "a.jsonl" {
		t.Errorf("faults %+v", r.Faults)
	}
}

func TestNothing(t *testing.T) {
	whole := gzipped(t, strings.Repeat(twice, 100))
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "PO564 the logs are empty"},
		"blank":           {" \n\r\n", "PO564 the logs are empty"},
		"indented":        {"{\n \"input\": \"x\"\n}\n", "becomes lines by jq -c"},
		"garbage":         {"a\nb\n", "PO564 no line is a JSON object; line 1 of a.jsonl: it is no JSON object"},
		"another log":     {`{"msg":"x","lev\u001b[2Jel":1}`, "PO564 no line tells of a model call; name the fields with --input, --model and --cost. Those of the first line are lev\ufffd[2Jel, msg"},
		"no identity":     {`{"model":"m","question":"x"}`, "Those of the first line are model, question"},
		"zstd":            {"\x28\xb5\x2f\xfd....", "PO561 a.jsonl breaks off after line 0, and what comes before it is counted: it is packed by zstd; run zstd -dc a.jsonl | worker audit -"},
		"a cut gzip head": {string(whole[:5]), "PO561 a.jsonl breaks off after line 0"},
	} {
		r, err := audit.Run(t.Context(), []audit.Source{log("a.jsonl", c.text)}, options())
		if r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: report %+v, error %v; want none and %q", name, r, err, c.want)
		}
	}
}

// A source that breaks off is an error beside the report of what was read.
func TestBrokenOff(t *testing.T) {
	whole := gzipped(t, strings.Repeat(twice, 2000))
	r, err := audit.Run(t.Context(), []audit.Source{log("a.gz", string(whole[:len(whole)*3/4])), log("b", twice)}, options())
	if err == nil || !strings.Contains(err.Error(), "PO561 a.gz breaks off after line ") || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("error %v", err)
	}
	if r == nil || r.Distinct != 2 || r.BadLines != 0 || r.Calls < 1000 {
		t.Errorf("report %+v, want what was before", r)
	}
	gone := audit.Source{Name: "c", Open: func() (io.ReadCloser, error) { return nil, os.ErrPermission }}
	r, err = audit.Run(t.Context(), []audit.Source{gone, log("b", twice)}, options())
	if r == nil || r.Calls != 3 || !errors.Is(err, os.ErrPermission) {
		t.Errorf("report %+v, error %v", r, err)
	}
}

// Whatever the memory, the report is the same.
func TestSpill(t *testing.T) {
	var text bytes.Buffer
	if err := audit.Sample(&text, 5000, 7); err != nil {
		t.Fatal(err)
	}
	want := run(t, options(), text.String())
	if want.Repeated < 100 || len(want.Top) != 5 {
		t.Fatalf("the sample has %d repeats", want.Repeated)
	}
	for _, memory := range []int{1, 1 << 10, 100 << 10} {
		o := options()
		o.Temp, o.Memory = t.TempDir(), memory
		if r := run(t, o, text.String()); !reflect.DeepEqual(r, want) {
			t.Errorf("%d bytes: report\n%+v\nwant\n%+v", memory, r, want)
		}
		if left, err := os.ReadDir(o.Temp); err != nil || len(left) > 0 {
			t.Errorf("%d bytes: left behind %v, %v", memory, left, err)
		}
	}
	o := options()
	o.Temp, o.Memory = t.TempDir()+"/gone", 1
	if _, err := audit.Run(t.Context(), []audit.Source{log("a", twice)}, o); err == nil || !strings.Contains(err.Error(), "PO562 making a temporary file in "+o.Temp) {
		t.Errorf("no folder: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	o := options()
	o.Progress = func(audit.Progress) { cancel(cause) }
	var text bytes.Buffer
	if err := audit.Sample(&text, 5000, 7); err != nil {
		t.Fatal(err)
	}
	if r, err := audit.Run(ctx, []audit.Source{log("a", text.String())}, o); r != nil || !errors.Is(err, cause) {
		t.Errorf("report %v, error %v", r, err)
	}
}

func TestProgress(t *testing.T) {
	var last audit.Progress
	o := options()
	o.Progress = func(p audit.Progress) { last = p }
	s := log("a", twice)
	s.Size = int64(len(twice))
	if _, err := audit.Run(t.Context(), []audit.Source{s}, o); err != nil || last != (audit.Progress{Read: s.Size, Size: s.Size, Calls: 3}) {
		t.Errorf("%+v, %v", last, err)
	}
	if _, err := audit.Run(t.Context(), []audit.Source{s, log("b", twice)}, o); err != nil || last != (audit.Progress{Read: 2 * s.Size, Calls: 6}) {
		t.Errorf("with a source of unknown size: %+v, %v", last, err)
	}
}

func TestSample(t *testing.T) {
	text := func(n int, seed uint64) string {
		var b bytes.Buffer
		if err := audit.Sample(&b, n, seed); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	a := text(3000, 1)
	if a != text(3000, 1) || a == text(3000, 2) || strings.Count(a, "\n") != 3000 {
		t.Error("the sample is not the seed's")
	}
	last := ""
	for line := range strings.Lines(a) {
		var c struct{ Time string }
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.Time < last && len(c.Time) == len(last) {
			t.Fatalf("line %s after one of %s: %v", line, last, err)
		}
		last = c.Time
	}
}
