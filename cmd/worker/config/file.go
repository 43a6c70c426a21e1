package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader walks one YAML document and sets what it finds.
type reader struct {
	*loader
	where   func(ast.Node) Source
	anchors map[string]ast.Node
}

// document parses text, which came from the named source, and hands over its root
// node, nil when there is none. Excerpts of a broken file are not printed: the line
// that broke it may hold a secret.
func document(text []byte, name string) (ast.Node, *Fault) {
	at := func(line, column int) Source {
		return Source{"file", fmt.Sprintf("%s:%d:%d", name, line, column)}
	}
	f, err := parser.ParseBytes(text, 0)
	if broken, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		p := broken.GetToken().Position
		return nil, &Fault{Code: "PO002", Source: at(p.Line, p.Column), Text: "not YAML: " + broken.GetMessage()}
	}
	if err != nil {
		return nil, &Fault{Code: "PO002", Source: Source{"file", name}, Text: "not YAML; check indentation and quotes"}
	}
	var root ast.Node
	for _, d := range f.Docs {
		switch {
		case d.Body == nil:
		case root != nil:
			p := d.Body.GetToken().Position
			return nil, &Fault{Code: "PO002", Source: at(p.Line, p.Column), Text: "a second document begins here; keep one"}
		default:
			root = d.Body
		}
	}
	return root, nil
}

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 1 << 20

// readFile reads a file of the configuration, of which an unbounded one (a device, a log by mistake) is none.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return text, err
}

// section reads a mapping: names are the settings and sections below path.
func (r *reader) section(path string, n ast.Node) {
	n = r.resolve(n)
	if _, empty := n.(*ast.NullNode); empty || n == nil {
		return
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.fault("PO004", path, "", r.where(n), "write its fields below it, one a line")
		return
	}
	for _, e := range m.Values {
		r.entry(path, e)
	}
}

func (r *reader) entry(path string, e *ast.MappingValueNode) {
	if _, merge := e.Key.(*ast.MergeKeyNode); merge {
		r.fault("PO004", path, "<<", r.where(e.Key), "merge keys are not read; write the fields out")
		return
	}
	name := e.Key.GetToken().Value
	if path == "jobs" {
		r.job(name, e)
		return
	}
	r.child(join(path, name), e)
}

// job is an entry of jobs, whose names hold dots.
func (r *reader) job(name string, e *ast.MappingValueNode) {
	if _, ok := r.known[name]; !ok {
		r.fault("PO012", "jobs."+name, "", r.where(e.Key), "there is no such job; "+r.suggestJob(name))
		return
	}
	r.section("jobs."+name, e.Value)
}

func (r *reader) child(path string, e *ast.MappingValueNode) {
	if s, ok := r.setting(path); ok {
		r.leaf(s, e.Value)
		return
	}
	if r.isSection(path) {
		r.section(path, e.Value)
		return
	}
	text := "unknown key"
	if like := r.suggest(path); like != "" {
		text += "; did you mean " + like + "?"
	} else {
		text += "; take it out"
	}
	r.fault("PO003", path, "", r.where(e.Key), text)
}

// leaf sets one setting.
func (r *reader) leaf(s setting, n ast.Node) {
	n = r.resolve(n)
	where := r.where(n)
	if s.isList() {
		if routes, ok := r.routes(s.path, n); ok {
			r.setRoutes(s, routes, where)
		}
		return
	}
	if s.isMapping() {
		r.tenants(s, n)
		return
	}
	text, ok := scalar(n)
	if !ok {
		r.fault("PO004", s.path, "", where, "write one value, no list and no fields")
		return
	}
	r.set(s, text, where)
}

// tenants reads amounts by tenant.
func (r *reader) tenants(s setting, n ast.Node) {
	if _, empty := n.(*ast.NullNode); empty || n == nil {
		return
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.fault("PO004", s.path, "", r.where(n), "write dollars for each tenant: {acme: 200, globex: 0.5}")
		return
	}
	all := map[string]USD{}
	for _, e := range m.Values {
		tenant := e.Key.GetToken().Value
		one := setting{path: join(s.path, tenant), value: reflect.ValueOf(new(USD)).Elem()}
		text, ok := scalar(r.resolve(e.Value))
		if !ok {
			r.fault("PO004", one.path, "", r.where(e.Value), "write one value, no list and no fields")
		} else if err := one.set(text); err != nil {
			r.fail(one, text, r.where(e.Value), err)
		}
		all[tenant] = one.value.Interface().(USD)
	}
	r.config.sources[s.path] = r.where(n)
	s.value.Set(reflect.ValueOf(Tenants{all}))
}

// routes reads a list of routes; each needs all its fields.
func (r *reader) routes(path string, n ast.Node) ([]Route, bool) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fault("PO004", path, "", r.where(n), "write a list: [{name: primary, provider: openai, model: gpt-5-mini, timeout: 90s}]")
		return nil, false
	}
	routes := make([]Route, len(list.Values))
	before := len(r.faults)
	for i, n := range list.Values {
		r.route(fmt.Sprintf("%s[%d]", path, i), &routes[i], r.resolve(n))
	}
	return routes, len(r.faults) == before
}

func (r *reader) route(path string, into *Route, n ast.Node) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.fault("PO004", path, "", r.where(n), "write a route's fields: {name: primary, provider: openai, model: gpt-5-mini, timeout: 90s}")
		return
	}
	wanted := routeFields(path, into)
	seen := map[string]bool{}
	for _, e := range m.Values {
		name := e.Key.GetToken().Value
		i := slices.IndexFunc(wanted, func(s setting) bool { return s.path == path+"."+name })
		text, one := scalar(r.resolve(e.Value))
		switch {
		case i < 0:
			r.fault("PO003", path+"."+name, "", r.where(e.Key), "unknown key"+didYouMean(nearest(name, names(wanted))))
		case !one:
			r.fault("PO004", path+"."+name, "", r.where(e.Value), "write one value, no list and no fields")
		default:
			seen[name] = true
			if err := wanted[i].set(text); err != nil {
				r.fail(wanted[i], text, r.where(e.Value), err)
			}
		}
	}
	for _, s := range wanted {
		if name := strings.TrimPrefix(s.path, path+"."); !seen[name] && s.tag.Get("optional") == "" {
			r.fault("PO013", path, "", r.where(n), "the route has no "+name+"; it needs name, provider, model and timeout")
		}
	}
}

// resolve looks through anchors, aliases and tags.
func (r *reader) resolve(n ast.Node) ast.Node {
	switch v := n.(type) {
	case *ast.AnchorNode:
		r.anchors[v.Name.GetToken().Value] = v.Value
		return r.resolve(v.Value)
	case *ast.AliasNode:
		if target, ok := r.anchors[v.Value.GetToken().Value]; ok {
			return r.resolve(target)
		}
	case *ast.TagNode:
		return r.resolve(v.Value)
	}
	return n
}

// scalar is the text of a value as it was written; null is an empty one.
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return "", true
	case *ast.LiteralNode:
		return strings.TrimSuffix(v.Value.Value, "\n"), true
	case *ast.StringNode:
		return v.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}
