package prices

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/paidonce/paidonce/ledger"
)

// The columns of a file. Those that a row leaves empty are as their comments say.
const (
	colProvider     = "provider" // required
	colModel        = "model"    // required
	colFrom         = "from"     // required: 2025-08-07, from midnight UTC on
	colCurrency     = "currency" // required: USD
	colAbove        = "above"    // 0
	colInput        = "input"    // required
	colCacheRead    = "cache_read"
	colCacheWrite   = "cache_write"    // these two as input
	colCacheWrite1h = "cache_write_1h" // as cache_write
	colOutput       = "output"         // required
	colReasoning    = "reasoning"      // as output
)

var (
	required = []string{colProvider, colModel, colFrom, colCurrency, colInput, colOutput}
	// terms are the columns that multiply; empty means that there is no price.
	terms   = []string{"batch", "flex", "priority", "fast", "us"}
	columns = slices.Concat([]string{colProvider, colModel, colFrom, colCurrency, colAbove, colInput, colCacheRead, colCacheWrite,
		colCacheWrite1h, colOutput, colReasoning}, terms)
)

// Limits of what is believed.
const (
	maxFile   = 4 << 20                // bytes
	maxName   = 200                    // bytes of a provider's or model's name
	leastRate = ledger.USD / 1000      // per million: below that a price per token was meant
	mostRate  = 1_000_000 * ledger.USD // per million
	maxFactor = 10                     // above that a percentage was meant
)

// Fault is one thing that is wrong with a file of prices.
type Fault struct {
	Code         string // PO0xx
	File         string
	Line, Column int    // from 1; 0: it is about the whole file
	What         string // the column and the value, or ""
	Text         string // what is wrong and what to do
}

// Error is one line: code, what, where, what is wrong.
func (f Fault) Error() string {
	at := f.File
	if f.Line > 0 {
		at += ":" + strconv.Itoa(f.Line) + ":" + strconv.Itoa(f.Column)
	}
	if f.What == "" {
		return fmt.Sprintf("%s (%s): %s", f.Code, at, f.Text)
	}
	return fmt.Sprintf("%s %s (%s): %s", f.Code, f.What, at, f.Text)
}

// Faults are all that is wrong with a file, in its order.
type Faults []Fault

// Error has a line for each.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Read reads a file of prices: comma-separated, the columns named in its first line, one price a
// line, lines that begin with # passed over. file names it in errors and in Price.Source. The
// error is Faults, all of them.
func Read(file string, r io.Reader) (*Table, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, Faults{{Code: "PO060", File: file, Text: "the file of prices cannot be read: " + err.Error()}}
	}
	rd := &reader{file: file, table: &Table{models: map[model][]Price{}}, lines: map[string]int{}}
	if len(text) > maxFile {
		rd.fault("PO060", "", fmt.Sprintf("it is larger than %d MiB, which no file of prices is", maxFile>>20))
	} else {
		rd.read(strings.TrimPrefix(string(text), "\ufeff"))
	}
	if len(rd.faults) > 0 {
		return nil, rd.faults
	}
	return rd.table, nil
}

// reader reads one file and gathers what is wrong with it.
type reader struct {
	file   string
	csv    *csv.Reader
	header []string
	table  *Table
	lines  map[string]int // of the prices, for those that stand there twice
	faults Faults
}

func (r *reader) fault(code, what, text string) {
	r.faults = append(r.faults, Fault{Code: code, File: r.file, What: what, Text: text})
}

// faultAt notes a fault of a field of the record that was read last.
func (r *reader) faultAt(field int, code, what, text string) {
	line, column := r.csv.FieldPos(field)
	r.faults = append(r.faults, Fault{Code: code, File: r.file, Line: line, Column: column, What: what, Text: text})
}

func (r *reader) read(text string) {
	r.csv = csv.NewReader(strings.NewReader(text))
	r.csv.Comment, r.csv.FieldsPerRecord, r.csv.TrimLeadingSpace = '#', -1, true
	header, err := r.csv.Read()
	if err == io.EOF {
		r.fault("PO060", "", "it is empty; its first line names the columns: "+strings.Join(columns, ","))
		return
	}
	if err != nil || !r.columns(header) {
		r.broken(err)
		return
	}
	for {
		fields, err := r.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			r.broken(err)
			return
		}
		r.row(fields)
	}
	if len(r.table.models) == 0 && len(r.faults) == 0 {
		r.fault("PO060", "", "it has no prices; write one a line below the names of the columns")
	}
	for _, ps := range r.table.models {
		slices.SortFunc(ps, order)
	}
	r.bases()
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
}

// broken notes that the rest cannot be read.
func (r *reader) broken(err error) {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		r.faults = append(r.faults, Fault{Code: "PO060", File: r.file, Line: p.Line, Column: p.Column, Text: "not comma-separated: " + p.Err.Error() + "; what follows was not read"})
	}
}

// columns reads the first line and reports whether rows can be read by it.
func (r *reader) columns(header []string) bool {
	before := len(r.faults)
	for i, name := range header {
		header[i] = strings.TrimSpace(name)
	}
	switch {
	case strings.Contains(header[0], ";"):
		r.faultAt(0, "PO060", "", "columns are separated by commas, not semicolons")
		return false
	case !slices.ContainsFunc(required, func(name string) bool { return slices.Contains(header, name) }):
		r.faultAt(0, "PO061", "", "the first line does not name the columns; put one above it: "+strings.Join(columns, ","))
		return false
	}
	for i, name := range header {
		switch {
		case !slices.Contains(columns, name):
			r.faultAt(i, "PO061", name, "there is no such column; there are "+strings.Join(columns, ", "))
		case slices.Index(header, name) < i:
			r.faultAt(i, "PO061", name, "the column stands there twice")
		}
	}
	for _, name := range required {
		if !slices.Contains(header, name) {
			r.faultAt(0, "PO061", name, "the column is missing; the first line of the file names the columns")
		}
	}
	r.header = header
	return len(r.faults) == before
}

// row reads one price.
func (r *reader) row(fields []string) {
	before := len(r.faults)
	if len(fields) != len(r.header) {
		r.faultAt(0, "PO060", "", fmt.Sprintf("the line has %d fields and the first one has %d; is there a decimal comma?", len(fields), len(r.header)))
		return
	}
	line, _ := r.csv.FieldPos(0)
	p := Price{Factors: map[string]Factor{}, Source: r.file}
	if r.file != builtin {
		p.Source += ":" + strconv.Itoa(line)
	}
	given := map[string]bool{}
	for i, name := range r.header {
		value := strings.TrimSpace(fields[i])
		if given[name] = value != ""; given[name] || slices.Contains(required, name) {
			r.field(&p, i, name, value)
		}
	}
	p.fill(given)
	first, twice := r.lines[p.slot(p.Above)]
	if twice && len(r.faults) == before {
		r.faultAt(0, "PO065", p.Provider+" "+p.Model, fmt.Sprintf("line %d has a price from the same day on already; nobody could say which one counts", first))
	}
	if !twice {
		r.lines[p.slot(p.Above)] = line
	}
	if len(r.faults) > before {
		return
	}
	m := model{p.Provider, p.Model}
	r.table.models[m] = append(r.table.models[m], p)
}

// slot is what no two prices may share.
func (p *Price) slot(above int64) string {
	return fmt.Sprintf("%q %q %s %d", p.Provider, p.Model, p.From.Format(time.DateOnly), above)
}

// fill gives the prices that were left empty their meaning.
func (p *Price) fill(given map[string]bool) {
	for _, d := range []struct {
		name      string
		into      *ledger.Nano
		otherwise ledger.Nano
	}{{colCacheRead, &p.CacheRead, p.Input}, {colCacheWrite, &p.CacheWrite, p.Input}, {colReasoning, &p.Reasoning, p.Output}} {
		if !given[d.name] {
			*d.into = d.otherwise
		}
	}
	if !given[colCacheWrite1h] {
		p.CacheWrite1h = p.CacheWrite
	}
}

// field reads one value into its place.
func (r *reader) field(p *Price, i int, name, value string) {
	var err error
	code := "PO062"
	switch name {
	case colProvider:
		p.Provider, err = nameOf(strings.ToLower(value))
	case colModel:
		p.Model, err = nameOf(value)
	case colFrom:
		if p.From, err = time.Parse(time.DateOnly, value); err != nil {
			err = errors.New("write the first day as 2025-08-07; it counts from midnight UTC on")
		}
	case colCurrency:
		if code = "PO064"; value != "USD" {
			err = errors.New("prices are in US dollars; convert them and write USD")
		}
	case colAbove:
		if p.Above, err = strconv.ParseInt(value, 10, 64); err != nil || p.Above < 1 {
			err = errors.New("write a whole number of tokens, such as 200000, or nothing")
		}
	default:
		code = "PO063"
		if into := p.rate(name); into != nil {
			*into, err = rateOf(value)
		} else {
			p.Factors[name], err = factorOf(value)
		}
	}
	if err != nil {
		r.faultAt(i, code, strings.TrimSpace(name+" "+value), err.Error())
	}
}

// rate is the place of a price, nil if the column is a term.
func (p *Price) rate(name string) *ledger.Nano {
	return map[string]*ledger.Nano{colInput: &p.Input, colCacheRead: &p.CacheRead, colCacheWrite: &p.CacheWrite,
		colCacheWrite1h: &p.CacheWrite1h, colOutput: &p.Output, colReasoning: &p.Reasoning}[name]
}

func nameOf(s string) (string, error) {
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) || unicode.IsSpace(c) }) {
		return "", fmt.Errorf("write the name as the route has it: without spaces, and no longer than %d bytes", maxName)
	}
	return s, nil
}

func rateOf(s string) (ledger.Nano, error) {
	n, err := ledger.ParseUSD(s)
	switch {
	case err != nil || strings.HasPrefix(s, "-"):
		return 0, errors.New("write US dollars per million tokens, in digits with up to nine decimals, such as 0.25")
	case n > 0 && n < leastRate:
		return 0, errors.New("that is next to nothing for a million tokens; is it the price of one? Prices are per million tokens")
	case n > mostRate:
		return 0, errors.New("that is more than a dollar a token; prices are US dollars per million tokens")
	}
	return n, nil
}

func factorOf(s string) (Factor, error) {
	n, err := ledger.ParseUSD(s)
	if err != nil || n <= 0 || n > maxFactor*ledger.USD {
		return 0, fmt.Errorf("write what the price is multiplied by: 0.5 for half, at most %d", maxFactor)
	}
	return Factor(n), nil
}

// bases complains about a day on which only long requests have a price.
func (r *reader) bases() {
	for _, p := range r.table.Prices() {
		if _, base := r.lines[p.slot(0)]; !base {
			r.faults = append(r.faults, Fault{Code: "PO066", File: r.file, Line: r.lines[p.slot(p.Above)], Column: 1, What: p.Provider + " " + p.Model,
				Text: fmt.Sprintf("from %s on there is a price above %d tokens and none below; add a line with above left empty", p.From.Format(time.DateOnly), p.Above)})
		}
	}
}
