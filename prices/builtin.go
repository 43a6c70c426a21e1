package prices

import (
	_ "embed"
	"strings"
	"sync"
	"time"
)

//go:embed builtin.csv
var builtinText string

// AsOf is the day on which the built-in prices were compared with the providers' own pages.
var AsOf = time.Date(2026, time.August, 21, 0, 0, 0, 0, time.UTC)

// Builtin is the table that comes with this version, as of [AsOf].
var Builtin = sync.OnceValue(func() *Table {
	t, err := Read(builtin, strings.NewReader(builtinText))
	if err != nil {
		panic("prices: " + err.Error()) // a test reads the file, too
	}
	return t
})

const builtin = "built-in"
