package modelserver_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

const killedEnv = "MODELSERVER_TEST_BILL"

// TestMain is also the process that TestBillSurvivesAKill kills.
func TestMain(m *testing.M) {
	path := os.Getenv(killedEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	ms, err := modelserver.Start(modelserver.Options{BillPath: path})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ms.ScriptAny(modelserver.Fault{}, modelserver.Fault{Hold: true})
	fmt.Println(ms.URL())
	select {}
}

// The server is killed between a bill line and its answer: the line is in the
// file, and a new server goes on with the bill.
func TestBillSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bill")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url = strings.TrimSpace(url)
	if g := askMessages(t.Context(), url, noRetries()); g.err != nil {
		t.Error(g.err)
	}
	answered := make(chan got, 1)
	go func() { answered <- askMessages(t.Context(), url, noRetries()) }()
	eventually(t, func() bool {
		var bill []modelserver.Line
		getJSON(t, url+"/bill", &bill)
		return len(bill) == 2
	})
	cmd.Process.Kill()
	cmd.Wait()
	if g := <-answered; g.err == nil {
		t.Errorf("client got %+v", g)
	}

	bill, err := modelserver.ReadBill(path)
	if err != nil || len(bill) != 2 || !bill[0].Delivered || bill[1].Delivered || bill[1].Fault != "hold" || bill[1].Key != "acme:summarize:1" {
		t.Fatalf("bill %+v, %v", bill, err)
	}
	ms := start(t, modelserver.Options{BillPath: path})
	if g := askMessages(t.Context(), ms.URL(), noRetries()); g.err != nil {
		t.Error(g.err)
	}
	again, err := modelserver.ReadBill(path)
	if err != nil || len(again) != 3 || again[2].N != 3 || !again[2].Delivered || !reflect.DeepEqual(again[:2], bill) {
		t.Errorf("bill %+v, %v", again, err)
	}
	if n := len(ms.BillByKey()["acme:summarize:1"]); n != 3 {
		t.Errorf("%d lines in the server", n)
	}
}

// A bill that is not one is an error, never a shorter bill.
func TestReadBillRefusesDamage(t *testing.T) {
	for name, text := range map[string]string{
		"torn":          `{"n":1,"route":"/v1/messages"}` + "\n" + `{"n":2,"ro`,
		"two writers":   `{"n":1,"route":"/v1/messages"}` + "\n" + `{"n":1,"route":"/v1/messages"}` + "\n",
		"missing lines": `{"n":2,"delivered":true}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "bill")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if lines, err := modelserver.ReadBill(path); err == nil {
			t.Errorf("%s: read %+v", name, lines)
		}
		if ms, err := modelserver.Start(modelserver.Options{BillPath: path}); err == nil {
			ms.Close()
			t.Errorf("%s: started", name)
		}
	}
	if _, err := modelserver.ReadBill(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) && err == nil {
		t.Error("read a bill that does not exist")
	}
}
