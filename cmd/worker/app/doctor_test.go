package app

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/worker/doctor"
	"github.com/paidonce/paidonce/internal/modelserver"
)

// doctorCodes runs doctor and returns its exit code and its findings' codes.
func (w *world) doctorCodes() (int, []string, doctorDocument) {
	w.t.Helper()
	o := w.do("", "doctor", "--json")
	var d doctorDocument
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		w.t.Fatalf("doctor --json: exit %d, %v\n%s%s", o.code, err, o.stdout, o.stderr)
	}
	var cs []string
	for _, f := range d.Findings {
		cs = append(cs, f.Code)
	}
	return o.code, cs, d
}

func TestDoctor(t *testing.T) {
	w, _ := newRealWorld(t, modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_CONSUMER_DRAIN=25s", "PAIDONCE_CONSUMER_LEASE=60s")
	// The tests' Postgres runs without fsync, and doctor finds that (PO533).
	// Before anything is set up: no schema, no queues, and looking makes none.
	for range 2 {
		if code, cs, d := w.doctorCodes(); code != exitFindings || !slices.Equal(cs, []string{"PO531", "PO533", "PO537", "PO538", "PO545", "PO550"}) {
			t.Errorf("of an empty set-up doctor says %+v, exit %d", d, code)
		}
	}
	w.must("", "migrate", "up")
	w.submitted() // makes the queues
	code, cs, d := w.doctorCodes()
	if code != exitFindings || !slices.Equal(cs, []string{"PO654", "PO533", "PO545", "PO550"}) {
		t.Errorf("of a good set-up doctor says %+v, exit %d", d, code)
	}
	for _, p := range d.Parts {
		if !p.OK || strings.Contains(p.Text, "planted") {
			t.Errorf("part %+v", p)
		}
	}
	// The page shows what is printed.
	page, err := os.ReadFile(packageDir + "/../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(page), "```\n")
	sample, _, _ = strings.Cut(sample, "errors: 0")
	_, findings, _ := strings.Cut(w.do("", "doctor").stdout, "\n\n")
	if _, findings, _ = strings.Cut(findings, "set fsync = on\n"); findings != sample+"errors: 1, warnings: 0, infos: 3\n" {
		t.Errorf("docs/operations.md does not show\n%s", findings)
	}
	w.env = append(w.env, "PAIDONCE_BROKER_DECLARE=false", "PAIDONCE_BROKER_QUEUE=nowhere")
	if code, cs, d = w.doctorCodes(); code != exitFindings || !slices.Equal(cs, []string{"PO654", "PO533", "PO537", "PO538", "PO542", "PO545", "PO550"}) {
		t.Errorf("of missing queues doctor says %+v, exit %d", d, code)
	}
	w.env = slices.DeleteFunc(w.env, func(e string) bool { return strings.HasPrefix(e, "PAIDONCE_PROVIDERS_") })
	w.env = append(w.env, "PAIDONCE_LEDGER_URL=postgres://u:hunter2@127.0.0.1:1/none?connect_timeout=1", "PAIDONCE_BROKER_URL=amqp://u:hunter3@127.0.0.1:1/")
	o := w.do("", "doctor")
	for _, want := range []string{"error PO530 ledger: ", "error PO536 broker: ", "error PO014 providers: "} {
		if o.code != exitFindings || !strings.Contains(o.stdout, want) || strings.Contains(o.stdout, "hunter") {
			t.Errorf("of nothing at all doctor says (exit %d)\n%s", o.code, o.stdout)
		}
	}
}

func TestDiagnosis(t *testing.T) {
	for level, want := range map[doctor.Level]int{doctor.Info: exitDone, doctor.Warning: exitFindings, doctor.Error: exitFindings} {
		c := &call{Process: Process{Stderr: io.Discard}}
		if got := c.report(diagnosis([]doctor.Finding{{Level: doctor.Info}, {Level: level}})); got != want {
			t.Errorf("a finding of level %s: exit %d, want %d", level, got, want)
		}
	}
}

// A worker that runs is found at its address; anything else there is in the way.
func TestDoctorListens(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
	r := w.start()
	addr := r.says(`"setting":"http.listen","address":"([^"]+)"`)
	w.env[len(w.env)-1] = "PAIDONCE_HTTP_LISTEN=" + addr
	if _, cs, d := w.doctorCodes(); !slices.Equal(cs, []string{"PO017", "PO018", "PO550"}) {
		t.Errorf("beside a worker doctor says %+v", d)
	}
	r.stop()
	ms, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ms.Close()
	w.env[len(w.env)-1] = "PAIDONCE_HTTP_LISTEN=" + strings.TrimPrefix(ms.URL(), "http://")
	if code, cs, d := w.doctorCodes(); code != exitFindings || !slices.Contains(cs, "PO511") {
		t.Errorf("beside another server doctor says %+v, exit %d", d, code)
	}
}
