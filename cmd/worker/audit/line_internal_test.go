package audit

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzLine: no line takes the program down, and the same JSON in another spelling is the same call.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		`{"ts":"2026-11-02T08:00:00Z","job":"sum","entity":"1","input":"x","cost":"0.001"}`,
		`{"time":1762070400123,"request":{"model":"m","messages":[{"role":"user","content":"é\u0000"}]},"response":{"status":"failed","usage":{"input_tokens":1}}}`,
		`{"request_body":"{\"messages\":[1]}","status":"504","error":{"type":"x"},"cost":1e-5}`,
		`{"a.b":{"c":1},"a":{"b.c":2},"input":{"b":1,"a":[null,true,1.0e3]}}`,
		`{"input":"x","input":"y"}`, `{"input":"\ud800"}`, `{"":{}}`, `[]`, `{`, ``, "\xff", `{"cache_hit":true,"input":[]}`,
	} {
		f.Add([]byte(s))
	}
	fields := DefaultFields()
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := fields.parse(line, nil)
		if err != nil || a == nil {
			return
		}
		if a.cost < -1 || a.cost > maxCost || a.tokens < -1 || a.at < 0 {
			t.Errorf("%+v", a)
		}
		rec := encode(nil, a, 7)
		if b, n := decode(rec); n != len(rec) || b.identity != a.identity || b.at != a.at || b.cost != a.cost || b.tokens != a.tokens || b.answer != a.answer || b.job != cut(a.job) || b.entity != cut(a.entity) {
			t.Errorf("record of %+v reads as %+v", a, b)
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.MarshalIndent(v, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		b, err := fields.parse(bytes.TrimSpace(again), nil)
		if err != nil || b == nil || b.identity != a.identity || b.outcome != a.outcome || b.cost != a.cost || b.at != a.at {
			t.Errorf("%s is %+v; spelled as\n%s it is %+v, %v", line, a, again, b, err)
		}
	})
}
