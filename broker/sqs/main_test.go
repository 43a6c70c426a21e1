package sqs_test

import (
	"flag"
	"os"
	"testing"

	"github.com/paidonce/paidonce/internal/leaktest"
)

// TestMain lets more tests run at once than there are processors: they wait for
// the server most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(leaktest.Main(m))
}
