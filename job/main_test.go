package job_test

import (
	"os"
	"testing"

	"github.com/paidonce/paidonce/internal/leaktest"
)

// TestMain looks for goroutines that are left after the tests.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
