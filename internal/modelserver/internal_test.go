package modelserver

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An answer that cannot be put on the bill is not given, and Close says why.
func TestNoAnswerWithoutBill(t *testing.T) {
	ms, err := Start(Options{BillPath: filepath.Join(t.TempDir(), "bill")})
	if err != nil {
		t.Fatal(err)
	}
	ms.bill.file.Close() // as if the disk were full
	resp, err := http.Post(ms.URL()+Responses, "application/json", strings.NewReader(`{"model":"m","input":"x"}`))
	if err == nil {
		resp.Body.Close()
		t.Errorf("answered %s", resp.Status)
	}
	if n := len(ms.Bill()); n != 0 || ms.Requests() != 1 {
		t.Errorf("%d lines, %d requests", n, ms.Requests())
	}
	if err := ms.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}
