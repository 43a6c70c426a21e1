package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// soakSample is a worker at one moment.
type soakSample struct {
	at                    time.Duration
	rss, heap             float64 // bytes; heap in use
	goroutines, fds       float64
	ledger, rows, backlog int64 // of the database: bytes, jobs that are done; messages in the queues
	conns                 int64 // of all to the database
}

// thirds are the medians of a figure in the three thirds of the samples, the first tenth left out: a worker warms up.
func thirds(all []soakSample, of func(soakSample) float64) (m [3]float64) {
	all = all[len(all)/10:]
	for i := range m {
		var vs []float64
		for _, s := range all[i*len(all)/3 : (i+1)*len(all)/3] {
			vs = append(vs, of(s))
		}
		slices.Sort(vs)
		m[i] = vs[len(vs)/2]
	}
	return m
}

// notFlat says what there is more of in the last third than in the first.
func notFlat(all []soakSample) (more []string) {
	for _, c := range []struct {
		what   string
		of     func(soakSample) float64
		factor float64
		more   float64 // and so much more
	}{
		{"bytes of memory", func(s soakSample) float64 { return s.rss }, 1.10, 6 << 20},
		{"bytes of heap in use", func(s soakSample) float64 { return s.heap }, 1.20, 4 << 20},
		{"goroutines", func(s soakSample) float64 { return s.goroutines }, 1.10, 15},
		{"open files", func(s soakSample) float64 { return s.fds }, 1.10, 10},
	} {
		if m := thirds(all, c.of); m[2] > c.factor*m[0]+c.more {
			more = append(more, fmt.Sprintf("%.0f %s in the last third, %.0f in the first", m[2], c.what, m[0]))
		}
	}
	return more
}

// soakTable shows what the workers of those names had.
func soakTable(names []string, all [][]soakSample) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "WORKER\tAT\tRSS MB\tHEAP MB\tGOROUTINES\tFILES\tCONNECTIONS\tBACKLOG\tJOBS DONE\tLEDGER MB\tBYTES A JOB\t")
	for i, name := range names {
		n := len(all[i])
		for k := 0; k < n; k += max(1, n/15) {
			s := all[i][k]
			fmt.Fprintf(w, "%s\t%v\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\t%d\t%.1f\t%d\t\n", name, s.at.Round(time.Second), s.rss/1e6, s.heap/1e6, s.goroutines, s.fds,
				s.conns, s.backlog, s.rows, float64(s.ledger)/1e6, s.ledger/max(1, s.rows))
		}
		rss, heap := thirds(all[i], func(s soakSample) float64 { return s.rss }), thirds(all[i], func(s soakSample) float64 { return s.heap })
		gor, fds := thirds(all[i], func(s soakSample) float64 { return s.goroutines }), thirds(all[i], func(s soakSample) float64 { return s.fds })
		for k, third := range []string{"first", "second", "last"} {
			fmt.Fprintf(w, "%s\t%s third\t%.1f\t%.1f\t%.0f\t%.0f\t\t\t\t\t\t\n", name, third, rss[k]/1e6, heap[k]/1e6, gor[k], fds[k])
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}

// Noise is flat and a slow leak is not, whichever figure it is in.
func TestNotFlat(t *testing.T) {
	t.Parallel()
	for want, leak := range map[string]func(s *soakSample, n float64){
		"":                     func(*soakSample, float64) {},
		"bytes of memory":      func(s *soakSample, n float64) { s.rss += n * 400e3 },
		"bytes of heap in use": func(s *soakSample, n float64) { s.heap += n * 200e3 },
		"goroutines":           func(s *soakSample, n float64) { s.goroutines += n },
		"open files":           func(s *soakSample, n float64) { s.fds += n / 2 },
	} {
		var all []soakSample
		for i := range 90 {
			wave := float64(i % 7)
			s := soakSample{rss: 70e6 + wave*1e6, heap: 7e6 + wave*3e5, goroutines: 60 + wave, fds: 30 + wave}
			leak(&s, float64(i))
			all = append(all, s)
		}
		got := notFlat(all)
		if want == "" && len(got) != 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("a leak of %q: %q\n%s", want, got, soakTable([]string{"worker"}, [][]soakSample{all}))
		}
	}
}
