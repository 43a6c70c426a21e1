package postgres

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// collect reads the rows of a statement, each into a T, a struct whose fields are named as the columns are. Which field
// a column belongs to is found out once for all rows, where pgx does it for each.
func collect[T any](rows pgx.Rows) ([]T, error) {
	defer rows.Close()
	var row T // each value that is scanned into it is a copy of its own, and every field gets one
	var into []any
	var found []T
	for rows.Next() {
		if into == nil { // of a statement that failed there are no columns
			var err error
			if into, err = targets(&row, rows.FieldDescriptions()); err != nil {
				return nil, err
			}
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// targets are the fields of a row in the order of the columns. Every column has one and every field is
// of one: a statement and its row that do not fit are an error, and never a wrong value.
func targets(row any, columns []pgconn.FieldDescription) ([]any, error) {
	v := reflect.ValueOf(row).Elem()
	fields := fieldsOf(v.Type())
	if len(columns) != len(fields) {
		return nil, fmt.Errorf("a row of %d columns for the %d fields of %s", len(columns), len(fields), v.Type())
	}
	into, seen := make([]any, len(columns)), make(map[string]bool, len(columns))
	for i := range columns {
		name := columns[i].Name
		at, ok := fields[name]
		if !ok || seen[name] {
			return nil, fmt.Errorf("column %s has no field of its own in %s", name, v.Type())
		}
		seen[name], into[i] = true, v.FieldByIndex(at).Addr().Interface()
	}
	return into, nil
}

// known are the fields of rows' types, by the names of their columns.
var known sync.Map

func fieldsOf(t reflect.Type) map[string][]int {
	if f, ok := known.Load(t); ok {
		return f.(map[string][]int)
	}
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			fields[snake(f.Name)] = f.Index
		}
	}
	known.Store(t, fields)
	return fields
}

// snake is the name of a field's column: InputHash is input_hash, and ResultID result_id.
func snake(field string) string {
	var s strings.Builder
	letters := []rune(field)
	for i, c := range letters {
		word := i > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if word {
			s.WriteByte('_')
		}
		s.WriteRune(unicode.ToLower(c))
	}
	return s.String()
}
