package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profiled writes where the worker's time goes to files in plan.Profile, if that is named, until the
// function that it returns is called: CPU, what is allocated, and where goroutines wait and for whose locks.
func (w *worker) profiled() (stop func() error, err error) {
	if w.Profile == "" {
		return func() error { return nil }, nil
	}
	name := func(what string) string {
		return filepath.Join(w.Profile, fmt.Sprintf("%s-%s.%s", w.System, w.Mode, what))
	}
	cpu, err := os.Create(name("cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	runtime.SetBlockProfileRate(1_000_000) // ns: often enough, and cheap
	runtime.SetMutexProfileFraction(100)
	return func() error {
		pprof.StopCPUProfile()
		if err := cpu.Close(); err != nil {
			return err
		}
		for _, what := range []string{"block", "mutex", "allocs"} {
			f, err := os.Create(name(what))
			if err != nil {
				return err
			}
			if err := pprof.Lookup(what).WriteTo(f, 0); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
