package app

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/worker/audit"
)

const repeated = `{"ts":"2026-11-02T08:00:00Z","job":"sum\u001b[2J","entity":"1","input":"x","cost":"0.001"}
{"ts":"2026-11-02T08:00:30Z","job":"sum\u001b[2J","entity":"1","input":"x","cost":"0.002"}
{"ts":"2026-11-02T09:00:00Z","entity":"2","input":"x","status":504}
nothing
`

// What the pages show is what the commands print.
func TestAuditPages(t *testing.T) {
	w := newWorld(t)
	o := w.do(w.must("", "audit", "--sample", "20000"), "audit", "-")
	// A busy machine takes long enough for it to tell how far it is.
	said := regexp.MustCompile(`(?m)^so far: .*\n`).ReplaceAllString(o.stderr, "")
	if o.code != exitFindings || said != "worker: PO519 1,082 of 19,970 calls had been made and paid before\n" {
		t.Errorf("exit %d, stderr %q", o.code, o.stderr)
	}
	for _, page := range []string{"README.md", "docs/cost.md"} {
		text, err := os.ReadFile(packageDir + "/../../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		if want := "```\n$ worker audit --sample 20000 | worker audit -\n" + o.stdout + "```\n"; !strings.Contains(string(text), want) {
			t.Errorf("%s does not have\n%s", page, want)
		}
	}
}

// The page names every field that is looked for without a flag.
func TestAuditFields(t *testing.T) {
	text, err := os.ReadFile(packageDir + "/../../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, fields := range fieldDefaults() {
		flag := "| `--" + strings.ReplaceAll(strings.TrimPrefix(name, "audit_"), "_", "-") + "` |"
		want := " | `" + strings.ReplaceAll(fields, ",", "` `") + "` |\n"
		if _, row, ok := strings.Cut(string(text), flag); !ok || !strings.HasSuffix(strings.SplitAfter(row, "\n")[0], want) {
			t.Errorf("docs/cost.md has no row %s … %s", flag, want)
		}
	}
}

func TestAuditJSON(t *testing.T) {
	w := newWorld(t)
	w.file("a.jsonl", repeated)
	o := w.do("", "audit", "--json", "a.jsonl", "--top", "1")
	var d struct {
		Calls, Distinct, Repeated, Unknown int
		BadLines                           int    `json:"bad_lines"`
		WastedUSD                          string `json:"wasted_usd"`
		Top                                []struct {
			Hash, Job, Entity string
			Count             int
		}
		Faults []audit.Fault
	}
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		t.Fatalf("%v\n%s", err, o.stdout)
	}
	if o.code != exitFindings || d.Calls != 3 || d.Distinct != 1 || d.Repeated != 1 || d.WastedUSD != "0.002" || d.Unknown != 1 || d.BadLines != 1 {
		t.Errorf("exit %d\n%s", o.code, o.stdout)
	}
	if len(d.Top) != 1 || len(d.Top[0].Hash) != 32 || d.Top[0].Job != "sum\x1b[2J" || d.Top[0].Entity != "1" || d.Top[0].Count != 2 {
		t.Errorf("top %+v", d.Top)
	}
	if len(d.Faults) != 1 || d.Faults[0].File != "a.jsonl" || d.Faults[0].Line != 4 {
		t.Errorf("faults %+v", d.Faults)
	}
}

func TestAuditText(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	o := w.do(repeated, "audit", "-")
	golden(t, "audit.txt", o.stdout)
	o = w.do(strings.Repeat(`{"job":"j","input":"x","tokens_in":700,"tokens_out":800}`+"\n", 2), "audit", "-", "--cost=")
	golden(t, "audit_unpriced.txt", o.stdout)
	if o.code != exitFindings {
		t.Errorf("exit %d", o.code)
	}
	o = w.do(`{"job":"j","input":"x","cost":"1234.567"}`, "audit", "-")
	golden(t, "audit_none.txt", o.stdout)
	if o.code != exitDone || o.stderr != "" {
		t.Errorf("exit %d, stderr %q; nothing was repeated", o.code, o.stderr)
	}
}

func TestAuditUsage(t *testing.T) {
	w := newWorld(t)
	w.file("a.jsonl", repeated)
	w.file("worker.yaml", "no: configuration")
	w.refused(exitUsage, "", []string{"audit"}, "PO502 name the files to read")
	w.refused(exitUsage, "", []string{"audit", "gone"}, "PO507", "gone")
	w.refused(exitUsage, "", []string{"audit", "."}, "PO507 . is a folder")
	w.refused(exitUsage, "", []string{"audit", "a.jsonl", "./a.jsonl"}, "PO507 ./a.jsonl is there twice")
	w.refused(exitUsage, "", []string{"audit", "-", "-"}, "PO507 - is there twice")
	w.refused(exitUsage, "", []string{"audit", "a.jsonl", "--top", "0"}, "PO502 --top 0")
	w.refused(exitUsage, "", []string{"audit", "a.jsonl", "--temp", "gone"}, "PO500", "gone")
	w.refused(exitUsage, "", []string{"audit", "--sample=-1"}, "PO502 --sample -1")
	w.refused(exitFailed, "\x1f\x8bcut", []string{"audit", "-"}, "PO561 stdin breaks off after line 0")
	w.refused(exitFailed, "", []string{"audit", "-"}, "PO564 the logs are empty")
	w.refused(exitFailed, `{"model":"m","question":"x"}`, []string{"audit", "-"}, "Those of the first line are model, question")
	w.refused(exitFindings, "", []string{"audit", "a.jsonl"}, "PO519 1 of 3 calls")
	o := w.do(`{"q":1,"u":"a"}`+"\n"+`{"q":1,"u":"b"}`+"\n"+`{"q":1,"u":"a"}`, "audit", "-", "--input", "q", "--entity", "u,v")
	if o.code != exitFindings || !strings.Contains(o.stderr, "1 of 3 calls") {
		t.Errorf("mapped fields: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}
