package config

import (
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// DefaultFile is read when no other file is named and it is there.
const DefaultFile = "worker.yaml"

// Options are the places where a configuration comes from.
type Options struct {
	// File is the file to read; "": DefaultFile, if it is there.
	File string
	// Environ is the environment, as os.Environ has it. An empty value is no value.
	Environ []string
	// Flags are values given as flags, by path, with the name of the flag.
	Flags []Flag
	// Jobs are the known jobs with their default routes.
	Jobs map[string][]Route
	// Turns are those of them that take turns, with how many they have by default.
	Turns map[string]int
	// Providers are the names that a route may give.
	Providers []string
}

// Flag is a value that was given as a flag.
type Flag struct{ Name, Path, Value string }

// loader gathers the configuration and what is wrong with it.
type loader struct {
	Options
	config *Config
	jobs   map[string]*Job
	faults Faults
	known  map[string][]Route
}

// Load reads the configuration: flags over environment over file over defaults. Its
// error is Faults, all of them; the configuration is then what could be
// understood, for further checks alone.
func Load(o Options) (*Config, error) {
	c := &Config{sources: map[string]Source{}}
	l := &loader{Options: o, config: c, known: o.Jobs}
	c.settings = fields("", reflect.ValueOf(c).Elem())
	jobs, more := jobSettings(o.Jobs, o.Turns)
	l.jobs = jobs
	at := slices.IndexFunc(c.settings, func(s setting) bool { return strings.HasPrefix(s.path, "http.") })
	c.settings = slices.Insert(c.settings, at, more...) // where the struct has them

	l.defaults()
	l.file()
	l.environment()
	l.flags()
	c.Jobs = make(map[string]Job, len(jobs))
	for name, j := range jobs {
		c.Jobs[name] = *j
	}
	l.check()
	c.faults = l.faults
	if len(l.faults) > 0 {
		return c, l.faults
	}
	return c, nil
}

func (l *loader) defaults() {
	for _, s := range l.config.settings {
		l.config.sources[s.path] = Source{Kind: "default"}
		if text, ok := s.tag.Lookup("default"); ok {
			if err := s.set(text); err != nil {
				panic("config: default of " + s.path + ": " + err.Error()) // a tag of Config
			}
		}
	}
}

func (l *loader) file() {
	name := l.File
	if name == "" {
		name = DefaultFile
	}
	text, err := readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.File == "":
		return
	case err != nil:
		l.fault("PO001", "", name, Source{"flag", "--config"}, "the file cannot be read: "+cause(err))
		return
	}
	root, fault := document(text, name)
	if fault != nil {
		l.faults = append(l.faults, *fault)
		return
	}
	where := func(n ast.Node) Source { return position(name, n) }
	(&reader{loader: l, where: where, anchors: map[string]ast.Node{}}).section("", root)
}

// environment reads the variables in the order of the settings, and warns of those that
// look like settings and are none (a typing error, or another program's).
func (l *loader) environment() {
	env := map[string]string{}
	for _, e := range l.Environ {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, envPrefix) && value != "" {
			env[name] = value
		}
	}
	var names []string
	for _, s := range l.config.settings {
		names = append(names, s.env())
		text, ok := env[s.env()]
		if !ok {
			continue
		}
		delete(env, s.env())
		where := Source{"environment", s.env()}
		if s.isList() || s.isMapping() {
			l.listFrom(s, text, where)
			continue
		}
		l.set(s, text, where)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		l.config.warnings = append(l.config.warnings, "PO016 environment "+name+" is no setting and is not read"+didYouMean(nearest(name, names)))
	}
}

// listFrom reads a list or a mapping that stands in one variable, in YAML's flow style.
func (l *loader) listFrom(s setting, text string, where Source) {
	root, fault := document([]byte(text), where.At)
	if fault != nil {
		fault.Source, fault.Path = where, s.path
		l.faults = append(l.faults, *fault)
		return
	}
	r := &reader{loader: l, where: func(ast.Node) Source { return where }, anchors: map[string]ast.Node{}}
	r.leaf(s, root)
}

func (l *loader) flags() {
	for _, f := range l.Flags {
		s, ok := l.setting(f.Path)
		if !ok {
			panic("config: flag " + f.Name + " sets " + f.Path + ", which does not exist")
		}
		l.set(s, f.Value, Source{"flag", f.Name})
	}
}

// set gives a setting a value, or notes why it cannot have it.
func (l *loader) set(s setting, text string, where Source) {
	l.config.sources[s.path] = where
	if err := s.set(text); err != nil {
		l.fail(s, text, where, err)
	}
}

func (l *loader) setRoutes(s setting, routes []Route, where Source) {
	l.config.sources[s.path] = where
	s.value.Set(reflect.ValueOf(routes))
}

// fail notes an error of a setter, which begins with its code.
func (l *loader) fail(s setting, text string, where Source, err error) {
	code, why, ok := strings.Cut(err.Error(), " ")
	if !ok || !strings.HasPrefix(code, "PO") {
		code, why = "PO005", err.Error()
	}
	l.fault(code, s.path, s.printable(text), where, why)
}

func (l *loader) fault(code, path, value string, where Source, text string) {
	l.faults = append(l.faults, Fault{Code: code, Path: path, Value: value, Source: where, Text: text})
}

func (l *loader) setting(path string) (setting, bool) {
	i := slices.IndexFunc(l.config.settings, func(s setting) bool { return s.path == path })
	if i < 0 {
		return setting{}, false
	}
	return l.config.settings[i], true
}

func (l *loader) isSection(path string) bool {
	return path == "jobs" || slices.ContainsFunc(l.config.settings, func(s setting) bool { return strings.HasPrefix(s.path, path+".") })
}

func position(file string, n ast.Node) Source {
	p := n.GetToken().Position
	return Source{"file", file + ":" + itoa(p.Line) + ":" + itoa(p.Column)}
}
