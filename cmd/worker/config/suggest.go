package config

import (
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// suggest is the path that was probably meant, or "": the nearest name in the same
// section, else a setting of the same name elsewhere.
func (l *loader) suggest(path string) string {
	section, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		section, name = path[:i], path[i+1:]
	}
	var siblings []string
	for _, s := range l.config.settings {
		rest, below := strings.CutPrefix(s.path, section+".")
		if section == "" {
			rest, below = s.path, true
		}
		if first, _, _ := strings.Cut(rest, "."); below && !slices.Contains(siblings, first) {
			siblings = append(siblings, first)
		}
	}
	if like := nearest(name, siblings); like != "" {
		return join(section, like)
	}
	for _, s := range l.config.settings {
		if strings.HasSuffix(s.path, "."+name) {
			return s.path
		}
	}
	return ""
}

func (l *loader) suggestJob(name string) string {
	jobs := slices.Sorted(maps.Keys(l.known))
	if like := nearest(name, jobs); like != "" {
		return "did you mean " + like + "?"
	}
	return "there are " + strings.Join(jobs, ", ")
}

func didYouMean(like string) string {
	if like == "" {
		return ""
	}
	return "; did you mean " + like + "?"
}

// routeFields are the settings of one route.
func routeFields(path string, r *Route) []setting { return fields(path, reflect.ValueOf(r).Elem()) }

// names are the last parts of the settings' paths.
func names(all []setting) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = s.path[strings.LastIndexByte(s.path, '.')+1:]
	}
	return out
}

// cause is an error of the file system without the path, which is printed already.
func cause(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func itoa(n int) string { return strconv.Itoa(n) }
