package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

type before struct {
	Tenant string            `json:"tenant"`
	Rev    int               `json:"rev"`
	Lines  []line            `json:"lines"`
	Labels map[string]string `json:"labels,omitempty"`
	At     string            `json:"at"`
}

type line struct {
	Text  string  `json:"text"`
	Price float64 `json:"price"`
}

// after is before with its fields in another order and new ones, which old messages lack.
type after struct {
	Urgent *bool              `json:"urgent"`
	Lines  []line             `json:"lines"`
	Extra  struct{ A, B int } `json:"extra"`
	At     string             `json:"at"`
	Tags   []string           `json:"tags"`
	Rev    int                `json:"rev"`
	Labels map[string]string  `json:"labels"`
	Tenant string             `json:"tenant"`
}

const message = `{"tenant":"acme","rev":3,"lines":[{"text":"<a&b>","price":0},{"text":"","price":1.5}],"labels":{"z":"1","a":""},"at":"noon"}`

func decoded[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// canonical is the form that hashInput hashes.
func canonical(in any, volatile []string) ([]byte, error) {
	c := canons.Get().(*canon)
	defer c.free()
	form, err := c.form(in, volatile)
	return bytes.Clone(bytes.TrimPrefix(form, []byte(hashVersion))), err
}

// TestHashGolden: rows hold these hashes, so their bytes must not change.
func TestHashGolden(t *testing.T) {
	var b bytes.Buffer
	for _, in := range []any{
		decoded[before](t, message), map[string]any{}, map[string]any{"n": json.Number("12345678901234567890"), "f": 1e21, "u": "\u2028é"},
		[]any{0, "", nil, map[string]any{"a": 0}}, "text", nil,
	} {
		c, err := canonical(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := hashInput(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s\n", c, h)
	}
	golden(t, "hashes.txt", b.Bytes())
}

func TestHashStable(t *testing.T) {
	hash := func(in any, volatile ...string) string {
		t.Helper()
		h, err := hashInput(in, volatile)
		if err != nil {
			t.Fatal(err)
		}
		return h.String()
	}
	old := hash(decoded[before](t, message))
	if got := hash(decoded[after](t, message)); got != old {
		t.Error("new empty fields, or their order, change the hash")
	}
	if got := hash(decoded[before](t, `{"rev":4,`+message[len(`{"tenant":"acme","rev":3,`):])); got == old {
		t.Error("another revision has the same hash")
	}
	other := decoded[before](t, message)
	other.At = "midnight"
	if hash(other) == old {
		t.Error("another time has the same hash")
	}
	if hash(other, "at") != hash(decoded[before](t, message), "at") {
		t.Error("a volatile field changes the hash")
	}
	swapped := decoded[before](t, message)
	swapped.Lines[0], swapped.Lines[1] = swapped.Lines[1], swapped.Lines[0]
	if hash(swapped) == old {
		t.Error("the order of a list does not change the hash")
	}
	if hash(map[string]any{"a": []any{nil, 1}}) == hash(map[string]any{"a": []any{1}}) {
		t.Error("a place in a list is lost")
	}
	if _, err := hashInput(map[string]any{"f": func() {}}, nil); err == nil {
		t.Error("what cannot be encoded has a hash")
	}
}

// byTree is the canonical form as the first rows were hashed by it: by way of a tree of values.
func byTree(in any, volatile []string) ([]byte, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		for _, f := range volatile {
			delete(m, f)
		}
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err = e.Encode(prune(v))
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = prune(e); zero(e) {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

func zero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		return v == "0" || v == "-0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// FuzzCanonical: whatever a message holds, its canonical form is the one that rows were hashed by.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{message, `null`, `""`, `"a<b>\u2028\n\ud800"`, `[]`, `{}`, `[0,-0,0.0,1e3,false,null,"",[],{},{"a":0}]`, `{"a":{"b":{"c":[]}},"z":1}`,
		`{"a":1,"a":0}`, `{"a":0,"a":1}`, `{"b":1,"\u0061":2,"a":3}`, `{"v":1,"w":{"v":1}}`, "\"\xff\"", "{\"\xff\":1,\"\\ufffd\":2}", `{"<":1,"\/":2,"é":3,"\"":4}`, "\"\u2028\x7f\"", `"\"\\\/\b\f\n\r\t\u0008\u000c\u000a\u0041"`, `{"":1," ":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		var tree any
		if err := json.Unmarshal(body, &tree); err != nil { // a number that is no float64
			tree = nil
		}
		for _, in := range []any{json.RawMessage(body), tree} {
			want, werr := byTree(in, []string{"v"})
			got, err := canonical(in, []string{"v"})
			if (err == nil) != (werr == nil) || werr == nil && !bytes.Equal(got, want) {
				t.Errorf("canonical form of %q: %q, %v; by its tree %q, %v", body, got, err, want, werr)
			}
		}
	})
}

func nested(depth int) (v any) {
	for range depth {
		v = []any{v}
	}
	return v
}

// TestDeep: what nests too deep to be read has no canonical form.
func TestDeep(t *testing.T) {
	for _, c := range []struct {
		depth int
		ok    bool
	}{{maxDepth, true}, {maxDepth + 1, false}} {
		v := nested(c.depth)
		_, werr := byTree(v, nil)
		if _, err := canonical(v, nil); (err == nil) != c.ok || (werr == nil) != c.ok {
			t.Errorf("nested %d deep: %v, by its tree %v", c.depth, err, werr)
		}
	}
}

// TestHashBuffers: what one message leaves in the buffers, or is too large for them, changes nothing of the next one's hash.
func TestHashBuffers(t *testing.T) {
	type quoted struct {
		Text string `json:"text,string"` // the escapes for HTML are part of its value
	}
	long := strings.Repeat("<x>", keptCanon)
	var again []byte // the same names many times, of which the last counts
	for i := range 100 {
		again = fmt.Appendf(again, `,"%d":%d`, i%7, i+1)
	}
	again = append([]byte(`{"8":0`), append(again, '}')...)
	messages := []any{json.RawMessage(again), decoded[after](t, message), map[string]any{"z": long, "a": []any{1, map[string]any{"y": 1, "b": long}}}, func() {},
		nested(maxDepth + 1), decoded[before](t, message), "", map[string]any{"b": 1, "a": 0}, quoted{"<&"}}
	for range 3 {
		for _, m := range messages {
			want, werr := byTree(m, []string{"b"})
			got, err := canonical(m, []string{"b"})
			if (err == nil) != (werr == nil) || !bytes.Equal(got, want) {
				t.Errorf("canonical form of %.80q: %.80q, %v; by its tree %.80q, %v", m, got, err, want, werr)
			}
		}
	}
}

// TestHashKeeps: what was large is not kept.
func TestHashKeeps(t *testing.T) {
	names := map[string]int{}
	for i := range 5000 {
		names[fmt.Sprint(i)] = 1
	}
	for what, in := range map[string]any{"a long text": strings.Repeat("x", keptCanon), "many fields": names} {
		if _, err := canonical(in, nil); err != nil {
			t.Fatal(err)
		}
		c := canons.Get().(*canon)
		if n := c.size(); n > keptCanon {
			t.Errorf("after %s %d bytes are kept", what, n)
		}
		c.free()
	}
}

func BenchmarkHash(b *testing.B) {
	in := before{Tenant: "acme", Rev: 3, Lines: []line{{strings.Repeat("lorem ipsum ", 80), 1}, {"b", 2}}, Labels: map[string]string{"z": "1", "a": "2"}, At: "noon"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hashInput(in, nil); err != nil {
			b.Fatal(err)
		}
	}
}
