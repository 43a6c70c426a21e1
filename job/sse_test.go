package job

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// cut feeds text in pieces and returns its events, printed.
func cut(text []byte, sizes func() int) (events []string, safe int, c eventCutter) {
	for n := 0; ; {
		for e, ok := c.next(text[:n]); ok; e, ok = c.next(text[:n]) {
			events = append(events, e.name+"|"+string(e.data))
		}
		if n == len(text) {
			return events, c.safe, c
		}
		n = min(len(text), n+max(sizes(), 1))
	}
}

func whole() int { return 1 << 30 }

func TestEventCutter(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		rest string // what is not let through yet
		last string // the event that the end leaves; "-": none
	}{
		{"data: a\n\n", []string{"|a"}, "", "-"},
		{"\ufeffdata: a\n\n", []string{"|a"}, "", "-"},
		{"event: e\ndata: a\ndata:b\n\n", []string{"e|a\nb"}, "", "-"},
		{"data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}, "", "-"},
		{"data: a\r\rdata: b\r\r", []string{"|a"}, "data: b\r\r", "|b"},
		{"data: a\n\r\n", []string{"|a"}, "", "-"},
		{": ping\n\n: pong\n\n", nil, "", "-"},
		{"event: e\n\ndata: a\n\n", []string{"|a"}, "", "-"},
		{"id: 1\nretry: 5\ndata\n\n", []string{"|"}, "", "-"},
		{"data: a\n\ndata: b", []string{"|a"}, "data: b", "|b"},
		{"data: a\n\ndata: b\n", []string{"|a"}, "data: b\n", "|b"},
		{"data:  a \n\n", []string{"| a "}, "", "-"},
		{"\n\n\n", nil, "", "-"},
		{"", nil, "", "-"},
	} {
		got, safe, cutter := cut([]byte(c.text), whole)
		if !slices.Equal(got, c.want) || c.text[safe:] != c.rest {
			t.Errorf("%q: %q, rest %q; want %q, %q", c.text, got, c.text[safe:], c.want, c.rest)
		}
		last := "-"
		if e, ok := cutter.last([]byte(c.text)); ok {
			last = e.name + "|" + string(e.data)
		}
		if last != c.last {
			t.Errorf("%q leaves %q, want %q", c.text, last, c.last)
		}
	}
}

// simple cuts a text into events the slow and obvious way, line by line.
func simple(text string) (events []string) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var name string
	var data []string
	lines := strings.Split(text, "\n")
	for _, l := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case l == "" && data != nil:
			events = append(events, name+"|"+strings.Join(data, "\n"))
			fallthrough
		case l == "":
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return events
}

// FuzzEventCutter: however the text arrives, its events are those of a parser that
// sees it whole, and what is let through never runs ahead of the events.
func FuzzEventCutter(f *testing.F) {
	f.Add([]byte("event: a\ndata: b\r\n\r\n:c\n\n"), uint8(1))
	f.Add([]byte(chatStart+chatFinish+chatUsage+chatDone), uint8(7))
	f.Add([]byte("data: a\r\rdata: b\r\r\n\n"), uint8(3))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		got, safe, _ := cut(text, func() int { return int(size) })
		want := simple(string(text))
		if bytes.HasSuffix(text, []byte("\r")) && len(want) == len(got)+1 {
			want = want[:len(got)] // a carriage return at the end may be half of an ending
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q in pieces of %d: %q, want %q", text, size, got, want)
		}
		if safe > len(text) || safe < 0 {
			t.Fatalf("safe %d of %d", safe, len(text))
		}
		if ahead, _, _ := cut(text[:safe], whole); len(ahead) > len(got) {
			t.Fatalf("%q: %d events are let through, %d were read", text, len(ahead), len(got))
		}
	})
}

// FuzzReading: no stream makes the reader fail, and one without any of the words
// that end an answer is never taken for a whole one.
func FuzzReading(f *testing.F) {
	f.Add([]byte(chatStart + chatFinish + chatUsage + chatDone))
	f.Add([]byte("event: message_start\ndata: {\"message\":{\"id\":\"m\"}}\n\nevent: message_stop\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &reading{strict: true}
		ended := false
		var c eventCutter
		for e, ok := c.next(text); ok; e, ok = c.next(text) {
			ended = r.read(e) == completed || ended
		}
		if e, ok := c.last(text); ok {
			ended = r.read(e) == completed || ended
		}
		low := bytes.ToLower(text)
		proof := false
		for _, w := range []string{"finish", "complete", "stop", "done", "\\u"} {
			proof = proof || bytes.Contains(low, []byte(w))
		}
		if (ended || r.ended(true)) && !proof {
			t.Fatalf("%q is taken for a whole answer", text)
		}
	})
}
