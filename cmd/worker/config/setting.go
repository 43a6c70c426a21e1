package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// setting is one value of the configuration, as the struct's tags describe it.
type setting struct {
	path  string        // consumer.lease
	value reflect.Value // the field itself
	tag   reflect.StructTag
}

// env is the setting's name in the environment: PAIDONCE_CONSUMER_LEASE.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.path, ".", "_"))
}

const envPrefix = "PAIDONCE_"

// isList reports whether the setting is the routes of a job, a list rather than one value.
func (s setting) isList() bool { return s.value.Kind() == reflect.Slice }

// isMapping reports whether the setting is amounts by tenant.
func (s setting) isMapping() bool {
	_, ok := s.value.Interface().(Tenants)
	return ok
}

// set reads the text into the field.
func (s setting) set(text string) error {
	if allowed := s.tag.Get("enum"); allowed != "" && !slices.Contains(strings.Split(allowed, ","), text) {
		return fmt.Errorf("PO005 write one of %s", strings.ReplaceAll(allowed, ",", ", "))
	}
	switch v := s.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	case *string:
		*v = text
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("PO005 write a whole number")
		}
		*v = n
	case *bool:
		if text != "true" && text != "false" {
			return errors.New("PO005 write true or false")
		}
		*v = text == "true"
	default:
		panic(fmt.Sprintf("config: no reader for %s (%T)", s.path, v)) // a field of Config that nobody taught us
	}
	return nil
}

// show is the value as it may be printed.
func (s setting) show() string { return fmt.Sprint(s.value.Interface()) }

// printable is what may be printed of a text that was meant for this setting.
func (s setting) printable(text string) string {
	switch s.value.Interface().(type) {
	case Secret:
		return Secret{text}.String()
	case URL:
		return URL{text}.String()
	}
	if text == "" {
		return `""`
	}
	return text
}

// fields lists the settings of a struct in its order, with path in front of their names.
func fields(path string, v reflect.Value) []setting {
	var all []setting
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, ok := f.Tag.Lookup("conf")
		if !ok {
			continue
		}
		s := setting{path: join(path, name), value: v.Field(i), tag: f.Tag}
		_, leaf := s.value.Addr().Interface().(encoding.TextUnmarshaler)
		switch {
		case s.value.Kind() == reflect.Map: // jobs: theirs come from newConfig
		case s.value.Kind() == reflect.Struct && !leaf && !s.isMapping():
			all = append(all, fields(s.path, s.value)...)
		default:
			all = append(all, s)
		}
	}
	return all
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// jobSettings makes an entry for every known job, and lists their settings.
// Map elements cannot be set in place, so the entries are put into the map by finish.
func jobSettings(known map[string][]Route, turns map[string]int) (jobs map[string]*Job, all []setting) {
	jobs = make(map[string]*Job, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		j := &Job{Routes: slices.Clone(known[name])}
		jobs[name] = j
		for _, s := range fields("jobs."+name, reflect.ValueOf(j).Elem()) {
			if s.value.Addr().Interface() == &j.MaxTurns {
				if turns[name] == 0 {
					continue
				}
				s.tag = reflect.StructTag(fmt.Sprintf(`default:"%d"`, turns[name]))
			}
			all = append(all, s)
		}
	}
	return jobs, all
}
