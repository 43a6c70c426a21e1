package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
	return sha256.Sum256(append([]byte(hashVersion), c...)), nil
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
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // large integers keep every digit
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("reading it back: %w", err)
	}
	if m, ok := v.(map[string]any); ok {
		for _, f := range volatile {
			delete(m, f)
		}
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf) // sorts the keys of maps
	e.SetEscapeHTML(false)
	if err := e.Encode(prune(v)); err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// prune drops the fields of objects that are zero: null, "", 0, false, and empty
// arrays and objects, also those that become empty by pruning. Array elements stay, since their
// place means something.
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
