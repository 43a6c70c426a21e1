package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Value is one setting as it may be printed.
type Value struct {
	Path   string
	Text   string
	Source Source
	json   any
}

// Values lists the effective settings in the order of the configuration, secrets
// hidden.
func (c *Config) Values() []Value {
	vs := make([]Value, len(c.settings))
	for i, s := range c.settings {
		vs[i] = Value{Path: s.path, Text: s.show(), Source: c.sources[s.path], json: s.value.Interface()}
		if routes, ok := s.value.Interface().([]Route); ok {
			vs[i].Text, vs[i].json = printRoutes(routes)
		}
		if u, ok := s.value.Interface().(USD); ok {
			vs[i].json = u.String()
		}
		if p, ok := s.value.Interface().(Policy); ok {
			vs[i].json = p.String()
		}
	}
	return vs
}

// Print writes a table of the effective settings and where each came from.
func (c *Config) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, v := range c.Values() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Path, v.Text, v.Source)
	}
	return t.Flush()
}

// JSON is the effective configuration as one document: {"config": …, "sources":
// {"consumer.lease": "worker.yaml:3:9", …}, "hash": …}.
func (c *Config) JSON() map[string]any {
	tree, sources := map[string]any{}, map[string]string{}
	for _, v := range c.Values() {
		sources[v.Path] = v.Source.String()
		put(tree, split(v.Path), v.json)
	}
	return map[string]any{"config": tree, "sources": sources, "hash": c.Hash()}
}

// Hash is short and changes with the configuration, secrets apart. It is kept with every
// attempt's worker.
func (c *Config) Hash() string {
	h := sha256.New()
	for _, v := range c.Values() {
		fmt.Fprintf(h, "%s=%s\n", v.Path, v.Text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Scrub replaces every secret of the configuration that is found in s: a second
// net under types that do not print, for the texts of other people's errors. It is found as it is, and as
// it stands in JSON, in a URL, in base64 and where fmt prints bytes.
func (c *Config) Scrub(s string) string { return c.Scrubber()(s) }

// Scrubber is Scrub for who calls it often.
func (c *Config) Scrubber() func(string) string {
	secrets := c.secrets()
	forms := slices.Clone(secrets)
	for _, secret := range secrets {
		forms = append(forms, encoded(secret)...)
	}
	return func(s string) string {
		for _, form := range forms {
			s = strings.ReplaceAll(s, form, hidden)
		}
		return s
	}
}

// encoded are the other forms in which a secret is written. Of base64 they are the digits that depend on nothing else,
// wherever in three bytes it begins.
func encoded(secret string) (forms []string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	quoted, err := json.Marshal(secret)
	if err = cmp.Or(err, e.Encode(secret)); err != nil {
		panic(err) // texts have JSON
	}
	for _, s := range []string{string(quoted), strings.TrimSpace(b.String()), strconv.Quote(secret)} {
		inner := s[1 : len(s)-1]
		forms = append(forms, inner, strings.ReplaceAll(inner, "/", `\/`))
	}
	forms = append(forms, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]"))
	for skip := range 3 {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			text := enc.EncodeToString([]byte(strings.Repeat("x", skip) + secret))
			forms = append(forms, text[(skip*8+5)/6:(skip+len(secret))*8/6])
		}
	}
	return slices.DeleteFunc(forms, func(s string) bool { return len(s) < short+2 || s == secret })
}

// short is the least length of a secret that is looked for: shorter ones would be found in innocent words.
const short = 4

func (c *Config) secrets() []string {
	var all []string
	for _, s := range c.settings {
		switch v := s.value.Interface().(type) {
		case Secret:
			all = append(all, v.text)
		case URL:
			_, found := redact(v.text)
			all = append(all, found...)
		}
	}
	kept := all[:0]
	for _, s := range all {
		if len(s) >= short {
			kept = append(kept, s)
		}
	}
	// The longest first: what is left of a secret once a shorter one was taken out of it would not be found.
	slices.SortFunc(kept, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return kept
}

func printRoutes(routes []Route) (string, any) {
	texts, list := make([]string, len(routes)), make([]map[string]any, len(routes))
	for i, r := range routes {
		list[i] = map[string]any{}
		var parts []string
		for _, f := range fields("", reflect.ValueOf(&r).Elem()) {
			list[i][f.path] = f.value.Interface()
			if f.tag.Get("optional") == "" || !f.value.IsZero() {
				parts = append(parts, f.path+": "+f.show())
			}
		}
		texts[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(texts, ", ") + "]", list
}

// split cuts a path into the keys of the document; names of jobs hold a dot.
func split(path string) []string {
	if rest, ok := strings.CutPrefix(path, "jobs."); ok {
		i := strings.LastIndexByte(rest, '.')
		return []string{"jobs", rest[:i], rest[i+1:]}
	}
	return strings.Split(path, ".")
}

func put(tree map[string]any, path []string, v any) {
	for _, p := range path[:len(path)-1] {
		next, ok := tree[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[p] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = v
}
