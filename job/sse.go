package job

import (
	"bytes"
	"slices"
	"strings"
)

// event is one server-sent event.
type event struct {
	name string
	data []byte // valid until the next one
	end  int    // offset in the text just behind it
}

// eventCutter cuts the text of an event stream into events. The text only grows.
type eventCutter struct {
	line int // where the line under way begins
	pos  int // how far it was looked through
	safe int // up to here there are whole events and comments
	name string
	data []byte
	full bool // the event under way has data
}

// next returns the next whole event, if the text has one.
func (c *eventCutter) next(text []byte) (event, bool) {
	for c.pos < len(text) {
		end, after, ok := c.lineEnd(text)
		if !ok {
			break
		}
		line := text[c.line:end]
		if c.line == 0 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		c.line, c.pos = after, after
		if len(line) > 0 {
			c.field(line)
			continue
		}
		c.safe = after
		if e, ok := c.take(after); ok {
			return e, true
		}
	}
	return event{}, false
}

// lineEnd finds where the line under way ends and the next begins. A carriage
// return at the end of the text may be half of an ending, and waits.
func (c *eventCutter) lineEnd(text []byte) (end, after int, ok bool) {
	i := bytes.IndexAny(text[c.pos:], "\r\n")
	if i < 0 {
		c.pos = len(text)
		return 0, 0, false
	}
	i += c.pos
	switch {
	case text[i] == '\n':
		return i, i + 1, true
	case i+1 == len(text):
		c.pos = i
		return 0, 0, false
	case text[i+1] == '\n':
		return i, i + 2, true
	}
	return i, i + 1, true
}

func (c *eventCutter) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		c.name = string(value)
	case "data":
		if !c.full {
			c.data = c.data[:0]
		} else {
			c.data = append(c.data, '\n')
		}
		c.full = true
		c.data = append(c.data, value...)
	}
}

func (c *eventCutter) take(end int) (event, bool) {
	e, ok := event{name: c.name, data: c.data, end: end}, c.full
	c.name, c.full = "", false
	return e, ok
}

// last returns the event that the end of the text left without its empty line. Its
// data may be cut; who reads it finds out.
func (c *eventCutter) last(text []byte) (event, bool) {
	if line := bytes.TrimSuffix(text[c.line:], []byte("\r")); len(line) > 0 {
		c.field(line)
	}
	c.line, c.pos, c.safe = len(text), len(text), len(text)
	return c.take(len(text))
}

// meaning is what an event says about the stream.
type meaning int

const (
	passing   meaning = iota // content
	beginning                // names the answer
	counting                 // has usage
	finishing                // the answer is whole; its usage may follow
	completed                // terminal: nothing follows
	failing                  // terminal: the provider gave up
)

// meanings of the named events. Those of a chat have no names and are read one
// by one. Names that are not here are content.
var meanings = map[string]meaning{
	"response.created": beginning, "response.queued": beginning, "response.in_progress": beginning,
	"response.completed": completed, "response.incomplete": completed,
	"response.failed": failing, "response.cancelled": failing, "error": failing,
	"message_start": beginning, "message_delta": counting, "message_stop": completed,
	"transcript.text.done": completed, "speech.audio.done": completed,
	"image_generation.completed": completed, "image_edit.completed": completed,
}

// owing are the beginnings of names of families whose streams end with a terminal event.
var owing = []string{"response.", "message_", "content_block_", "ping", "transcript.", "speech.", "image_"}

// reading is what was understood of a stream so far.
type reading struct {
	strict   bool // the provider is known, and so are the ends of its streams
	owes     bool // a shape was seen that has a terminal event of its own
	events   int
	objectID string
	bill     bill
	choices  map[int]bool // chat: which have finished, of those seen
	finished bool         // chat: all of them
	fault    document     // what the failing event said
}

// read takes one event in.
func (r *reading) read(e event) meaning {
	r.events++
	if bytes.Equal(bytes.TrimSpace(e.data), []byte("[DONE]")) {
		return r.done()
	}
	m, named := meanings[e.name]
	family := slices.ContainsFunc(owing, func(f string) bool { return strings.HasPrefix(e.name, f) })
	r.owes = r.owes || family
	if family && !named {
		return passing // most of a stream: its text need not be parsed
	}
	d, ok := readDocument(e.data)
	if !ok {
		return passing // cut, or not JSON: no evidence of anything
	}
	if !named {
		m, named = meanings[d.Type]
	}
	r.owes = r.owes || named
	r.note(d)
	switch {
	case named:
	case !absent(d.Error):
		m = failing
	case len(d.Choices) > 0:
		m = r.chosen(d.Choices)
	}
	if m == failing {
		r.fault = d
	}
	return m
}

// note keeps the id and the bill of an event, or of the object in it.
func (r *reading) note(d document) {
	in := d
	if d.Response != nil {
		in = *d.Response
	} else if d.Type == "message_start" {
		in, _ = readDocument(d.Message)
	}
	if r.objectID == "" {
		r.objectID = in.objectID()
	}
	r.bill.add(in.bill())
	r.bill.add(d.bill())
}

// chosen follows the choices of a chat until each has finished.
func (r *reading) chosen(cs []choice) meaning {
	if r.choices == nil {
		r.choices = make(map[int]bool)
	}
	r.owes = true
	for _, c := range cs {
		r.choices[c.Index] = r.choices[c.Index] || c.Finish != nil && *c.Finish != ""
	}
	r.finished = true
	for _, f := range r.choices {
		r.finished = r.finished && f
	}
	if r.finished {
		return finishing
	}
	return passing
}

// done reads the [DONE] of a chat, which proves nothing by itself: gateways add it
// to streams that broke.
func (r *reading) done() meaning {
	if r.finished || !r.owes && r.events > 1 {
		return completed
	}
	return passing
}

// ended reports whether a stream that ended here is whole. A chat whose choices have
// finished lacks at most its usage; a provider that nobody knows may end as it likes, if
// the transport saw no cut.
func (r *reading) ended(clean bool) bool {
	return r.finished || clean && !r.strict && !r.owes && r.events > 0
}
