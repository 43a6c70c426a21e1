package job

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	c, err := canonical(in, volatile)
	if err != nil {
		return ledger.Hash{}, err
	}
	h := sha256.New()
	h.Write([]byte(hashVersion))
	h.Write(c)
	return ledger.Hash(h.Sum(nil)), nil
}

// inputKey is the short hash by which a call is memoised by its input.
func inputKey(in any) (string, error) {
	h, err := hashInput(in, nil)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h[:16]), nil
}

func canonical(in any, volatile []string) ([]byte, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	c := canon{in: b, volatile: volatile}
	out, _ := c.value(make([]byte, 0, len(b)))
	if c.err != nil {
		return nil, fmt.Errorf("reading it back: %w", c.err)
	}
	return out, nil
}

// canon rewrites what json.Marshal made, so it is JSON without white space. It drops the fields of objects that are
// zero: null, "", 0, false, and empty arrays and objects, also those that become empty by that. Array elements stay,
// since their place means something. Numbers keep every digit.
type canon struct {
	in       []byte
	at       int      // what was read
	depth    int      // of objects and arrays
	volatile []string // fields of the outermost object that do not count
	err      error
}

// maxDepth is how deep a message may nest, as package json has it.
const maxDepth = 10000

// value reads one value, appends its canonical form, and reports whether it is zero.
func (c *canon) value(out []byte) ([]byte, bool) {
	c.depth++
	defer func() { c.depth-- }()
	switch c.in[c.at] {
	case '{':
		return c.object(out)
	case '[':
		return c.array(out)
	case '"':
		text := c.text()
		return append(out, text...), len(text) == len(`""`)
	}
	from := c.at
	for c.at < len(c.in) && c.in[c.at] != ',' && c.in[c.at] != ']' && c.in[c.at] != '}' {
		c.at++
	}
	word := string(c.in[from:c.at])
	return append(out, word...), word == "null" || word == "false" || word == "0" || word == "-0"
}

func (c *canon) array(out []byte) ([]byte, bool) {
	empty := true
	out = append(out, '[')
	for c.more(']') {
		if !empty {
			out = append(out, ',')
		}
		out, _ = c.value(out)
		empty = false
	}
	return append(out, ']'), empty
}

// field is one of an object. Of fields of one name the last counts.
type field struct {
	name  string // decoded
	text  []byte // the canonical form of the name, and of the value
	value []byte
	zero  bool
}

func (c *canon) object(out []byte) ([]byte, bool) {
	var fields []field
	for c.more('}') {
		f := field{text: c.text()}
		if c.err == nil {
			c.err = json.Unmarshal(f.text, &f.name)
		}
		c.at++ // the colon
		f.value, f.zero = c.value(nil)
		f.zero = f.zero || c.depth == 1 && slices.Contains(c.volatile, f.name)
		fields = append(fields, f)
	}
	slices.SortStableFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	empty := true
	out = append(out, '{')
	for i, f := range fields {
		if f.zero || i+1 < len(fields) && fields[i+1].name == f.name {
			continue
		}
		if !empty {
			out = append(out, ',')
		}
		out = append(append(append(out, f.text...), ':'), f.value...)
		empty = false
	}
	return append(out, '}'), empty
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

// text reads a string and returns its canonical form, which escapes no more than it must.
func (c *canon) text() []byte {
	from, plain := c.at, true
	for c.at++; c.in[c.at] != '"'; c.at++ {
		if c.in[c.at] == '\\' {
			c.at++
			plain = plain && c.in[c.at] != 'u' && c.in[c.at] != '/' // the others are as short as can be
		}
	}
	c.at++
	raw := c.in[from:c.at]
	if plain && utf8.Valid(raw) {
		return raw
	}
	var s string
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := json.Unmarshal(raw, &s)
	if err == nil {
		err = e.Encode(s)
	}
	c.err = cmp.Or(c.err, err)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
