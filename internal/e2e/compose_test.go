package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// machine is what stands in for Docker: the services are processes of a World.
type machine struct {
	Binary string
	Env    map[string][]string // of a service's worker
	URLs   map[string]string   // where a URL of the containers' network leads
	Log    string              // file of the commands
}

const machineFile = "PAIDONCE_TEST_MACHINE"

// TestComposeProof runs tools/e2e-compose.sh without containers: its commands meet real
// workers, one on each broker, and a ledger that they share.
func TestComposeProof(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Options{})
	q := SQS.open(t, Options{})
	var overSQS []string
	for name, v := range q.Env {
		overSQS = append(overSQS, name+"="+v)
	}
	workers := map[string]*Proc{"worker": w.Start("worker"), "worker-sqs": w.Start("worker-sqs", overSQS...)}
	m := machine{Binary: binary(t), Log: filepath.Join(w.dir, "docker.log"),
		Env:  map[string][]string{"worker": w.env, "worker-sqs": slices.Concat(w.env, overSQS)},
		URLs: map[string]string{"http://127.0.0.1:8081": w.Models.URL()}}
	for name, p := range workers {
		m.URLs["http://"+name+":8080"] = "http://" + p.Says(`"setting":"http.listen","address":"([^"]+)"`)
	}
	out, err := w.script(m)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	up, down := strings.Index(string(log), "up --build --detach --wait"), strings.LastIndex(string(log), "down --volumes")
	if up < 0 || down < up || strings.Contains(string(log[down:]), "exec") || !strings.Contains(string(log), "--profile worker --profile worker-sqs up") {
		t.Errorf("it does not start, ask and take down, with both workers:\n%s", log)
	}
	w.UntilQuiet()
	w.Eventually(func() (bool, string) {
		d := q.Depth()
		return d == (Depth{}), fmt.Sprintf("the queue of SQS holds %+v", d)
	})
	jobs, bill := w.Jobs(), w.Models.BillByKey()
	for key, lines := range bill {
		if len(lines) != 1 {
			t.Errorf("%s was paid %d times, and the script did not see it", key, len(lines))
		}
	}
	for key, j := range jobs {
		if j.State != ledger.Done {
			t.Errorf("%s is %s, and the script did not see it", key, j.State)
		}
	}
	if len(jobs) != 60 || len(bill) != 60 || w.Depth() != (Depth{}) {
		t.Errorf("%d jobs and %d keys on the bill, want 60; the queue of RabbitMQ holds %+v", len(jobs), len(bill), w.Depth())
	}
}

// script runs the proof with this test program as its docker.
func (w *World) script(m machine) (string, error) {
	w.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	file, bin := filepath.Join(w.dir, "machine.json"), w.t.TempDir()
	err = errors.Join(os.WriteFile(file, text, 0o600), os.Symlink(self, filepath.Join(bin, "docker")))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), "../../tools/e2e-compose.sh")
	cmd.Env = append(os.Environ(), machineFile+"="+file, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// docker is the command of that name, as far as the script uses it.
func docker(args []string) int {
	var m machine
	text, err := os.ReadFile(os.Getenv(machineFile))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	var log *os.File
	if err == nil {
		log, err = os.OpenFile(m.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	if err == nil {
		_, err = fmt.Fprintln(log, strings.Join(args, " "))
	}
	if err == nil {
		err = m.run(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docker:", err)
		return 1
	}
	return 0
}

func (m machine) run(args []string) error {
	if slices.Equal(args, []string{"info"}) || slices.Equal(args, []string{"compose", "version"}) {
		return nil
	}
	verb := slices.IndexFunc(args, func(a string) bool { return slices.Contains([]string{"up", "down", "logs", "exec"}, a) })
	if args[0] != "compose" || verb < 0 {
		return fmt.Errorf("there is no %v here", args)
	}
	if args[verb] != "exec" {
		return nil
	}
	rest := args[verb+1:]
	if len(rest) < 3 || rest[0] != "-T" {
		return fmt.Errorf("exec %v without -T", rest)
	}
	switch service, program := rest[1], rest[2]; {
	case m.Env[service] != nil && program == "/worker":
		cmd := exec.Command(m.Binary, rest[3:]...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = m.Env[service], os.Stdin, os.Stdout, os.Stderr
		return cmd.Run()
	case service == "models" && program == "curl":
		return m.curl(rest[len(rest)-1])
	default:
		return fmt.Errorf("no %s in service %s", program, service)
	}
}

func (m machine) curl(url string) error {
	for from, to := range m.URLs {
		path, ok := strings.CutPrefix(url, from)
		if !ok {
			continue
		}
		r, err := http.Get(to + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		_, err = io.Copy(os.Stdout, r.Body)
		return err
	}
	return fmt.Errorf("nobody serves %s", url)
}
