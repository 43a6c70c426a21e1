package consumer_test

import (
	"os"
	"runtime"
	"runtime/pprof"
)

func zzProfile() {
	if p := os.Getenv("ZZPROF"); p != "" {
		runtime.GC()
		f, _ := os.Create(p)
		pprof.Lookup("heap").WriteTo(f, 0)
		f.Close()
	}
}
