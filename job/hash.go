package job

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// hashVersion stands in front of what is hashed. Raise it when the canonical
// form changes; rows written before then keep hashing to what they hold.
const hashVersion = "paidonce-input-1\n"

// hashInput is SHA-256 over the canonical JSON of the decoded message: object
// keys in order, no white space, fields with a zero value left out. So a field
// that is added later, and empty in old messages, does not change their hash,
// and neither do the order of fields nor fields that the type does not know.
func hashInput(in any, volatile []string) (ledger.Hash, error) {
	c := canons.Get().(*canon)
	defer c.free()
	form, err := c.form(in, volatile)
	if err != nil {
		return ledger.Hash{}, err
	}
	return sha256.Sum256(form), nil
}

// inputKey is the short hash by which a call is memoised by its input.
func inputKey(in any) (string, error) {
	h, err := hashInput(in, nil)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h[:16]), nil
}

// canon rewrites what encoding/json made, so it is JSON without white space. It drops the fields of objects that are
// zero: null, "", 0, false, and empty arrays and objects, also those that become empty by that. Array elements stay,
// since their place means something. Numbers keep every digit.
//
// Every message is hashed, so its buffers are used again.
type canon struct {
	encoded bytes.Buffer
	encoder *json.Encoder // into encoded, as json.Marshal writes
	in      []byte        // what is rewritten: part of encoded
	at      int           // what was read
	depth   int           // of objects and arrays

	out      []byte
	fields   []field  // that were read, of the objects around at
	moved    []byte   // what out held of an object whose fields are put in order
	volatile []string // fields of the outermost object that do not count
	err      error
}

// canons are those that nobody uses.
var canons = sync.Pool{New: func() any {
	c := new(canon)
	c.encoder = json.NewEncoder(&c.encoded)
	return c
}}

// keptCanon is how many bytes one keeps that is used again: a large message must not hold memory for ever.
const keptCanon = 64 << 10

func (c *canon) free() {
	if c.size() <= keptCanon {
		canons.Put(c)
	}
}

func (c *canon) size() int {
	return c.encoded.Cap() + cap(c.out) + cap(c.moved) + 40*cap(c.fields)
}

// form is the canonical form of a value behind the hash's version, until the canon is freed.
func (c *canon) form(in any, volatile []string) ([]byte, error) {
	c.encoded.Reset()
	if err := c.encoder.Encode(in); err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	c.in = bytes.TrimSuffix(c.encoded.Bytes(), []byte("\n"))
	c.at, c.depth, c.volatile, c.err = 0, 0, volatile, nil
	c.out, c.fields = append(c.out[:0], hashVersion...), c.fields[:0]
	c.value()
	if c.err != nil {
		return nil, fmt.Errorf("reading it back: %w", c.err)
	}
	return c.out, nil
}

// maxDepth is how deep a message may nest, as package json has it.
const maxDepth = 10000

// value reads one value, appends its canonical form to out, and reports whether it is zero.
func (c *canon) value() (zero bool) {
	c.depth++
	switch c.in[c.at] {
	case '{':
		zero = c.object()
	case '[':
		zero = c.array()
	case '"':
		zero = c.text()
	default:
		zero = c.word()
	}
	c.depth--
	return zero
}

// word is a number, true, false or null.
func (c *canon) word() (zero bool) {
	from := c.at
	for c.at < len(c.in) && c.in[c.at] != ',' && c.in[c.at] != ']' && c.in[c.at] != '}' {
		c.at++
	}
	c.out = append(c.out, c.in[from:c.at]...)
	switch string(c.in[from:c.at]) {
	case "null", "false", "0", "-0":
		return true
	}
	return false
}

func (c *canon) array() (empty bool) {
	empty = true
	c.out = append(c.out, '[')
	for c.more(']') {
		if !empty {
			c.out = append(c.out, ',')
		}
		c.value()
		empty = false
	}
	c.out = append(c.out, ']')
	return empty
}

// field is one of an object. Of fields of one name the last counts.
type field struct {
	name     []byte // decoded
	from, to int    // where out has name and value, with a comma; of a zero value nothing
}

func (c *canon) object() (empty bool) {
	first, ordered := len(c.fields), true
	c.out = append(c.out, '{')
	begin := len(c.out)
	for c.more('}') {
		f := field{from: len(c.out), name: c.name()}
		c.at++ // the colon
		c.out = append(c.out, ':')
		if c.value() || c.depth == 1 && slices.Contains(c.volatile, string(f.name)) {
			c.out = c.out[:f.from]
		} else {
			c.out = append(c.out, ',')
		}
		f.to = len(c.out)
		ordered = ordered && (len(c.fields) == first || bytes.Compare(c.fields[len(c.fields)-1].name, f.name) < 0)
		c.fields = append(c.fields, f)
	}
	if !ordered {
		c.order(c.fields[first:], begin)
	}
	c.fields = c.fields[:first]
	if len(c.out) == begin {
		c.out = append(c.out, '}')
		return true
	}
	c.out[len(c.out)-1] = '}' // for the last comma
	return false
}

// order puts the fields that are in out from begin on into the order of their names, each name once.
func (c *canon) order(fields []field, begin int) {
	slices.SortStableFunc(fields, func(a, b field) int { return bytes.Compare(a.name, b.name) })
	c.moved = append(c.moved[:0], c.out[begin:]...)
	c.out = c.out[:begin]
	for i, f := range fields {
		if i+1 < len(fields) && bytes.Equal(fields[i+1].name, f.name) {
			continue
		}
		c.out = append(c.out, c.moved[f.from-begin:f.to-begin]...)
	}
}

// more steps into an object or array, or past a comma in it. It is false behind its end.
func (c *canon) more(end byte) bool {
	if c.depth > maxDepth && c.err == nil {
		c.err = fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if c.err != nil {
		return false
	}
	over := c.in[c.at] == end
	c.at++
	if !over && c.in[c.at] == end { // of an empty one
		over = true
		c.at++
	}
	return !over
}

// name reads a field's name as text does, and returns what it stands for.
func (c *canon) name() []byte {
	from := c.at
	c.text()
	raw := c.in[from:c.at]
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return inner
	}
	return []byte(c.decoded(raw))
}

// text reads a string, appends its canonical form, which escapes no more than it must, and reports whether it is empty.
func (c *canon) text() (empty bool) {
	from, plain := c.at, true
	c.at++
	if end := bytes.IndexByte(c.in[c.at:], '"'); bytes.IndexByte(c.in[c.at:c.at+end], '\\') < 0 {
		c.at += end // most escape nothing
	}
	for ; c.in[c.at] != '"'; c.at++ {
		if c.in[c.at] == '\\' {
			c.at++
			plain = plain && c.in[c.at] != 'u' && c.in[c.at] != '/' // the others are as short as can be
		}
	}
	c.at++
	raw := c.in[from:c.at]
	if plain && utf8.Valid(raw) {
		c.out = append(c.out, raw...)
		return len(raw) == len(`""`)
	}
	out := bytes.NewBuffer(c.out)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	c.err = cmp.Or(c.err, e.Encode(c.decoded(raw)))
	c.out = bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	return false
}

func (c *canon) decoded(raw []byte) (s string) {
	c.err = cmp.Or(c.err, json.Unmarshal(raw, &s))
	return s
}
