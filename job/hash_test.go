package job

import (
	"bytes"
	"encoding/json"
	"fmt"
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
