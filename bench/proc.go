package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc, whatever the kernel's own.
const clockTick = time.Second / 100

// cpu is what the process has used, with the children that it has waited for and those that
// live.
func cpu(pid int) (time.Duration, error) {
	s, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	ticks := s.own + s.waited
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if c, err := readStat(n); err == nil && c.parent == pid { // an error: it has just ended
			ticks += c.own
		}
	}
	return time.Duration(ticks) * clockTick, nil
}

type stat struct{ parent, own, waited int }

// readStat reads proc(5)'s stat of a process.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(f))
	}
	var n [5]int // parent; user and system; those of the children waited for
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.Atoi(f[at]); err != nil {
			return stat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return stat{parent: n[0], own: n[1] + n[2], waited: n[3] + n[4]}, nil
}

// memory is a line of the process's status, such as VmRSS, in KiB.
func memory(pid int, name string) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, name)
}

// load is the machine's, of the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
