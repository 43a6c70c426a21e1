package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/paidonce/paidonce/cmd/worker/audit"
)

type auditCommand struct {
	asJSON
	Files []string `arg:"" optional:"" name:"file" help:"Logs of model calls, one JSON object a line, gzip too; - is stdin."`

	Time         []string `help:"When the call was made: RFC 3339 and the like, or a number since 1970." default:"${audit_time}" placeholder:"FIELD"`
	Job          []string `help:"Kind of work." default:"${audit_job}" placeholder:"FIELD"`
	Entity       []string `help:"What the call is about: tenant and ticket, document…; all that a line has, together." default:"${audit_entity}" placeholder:"FIELD"`
	Prompt       []string `help:"Version of the prompt." default:"${audit_prompt}" placeholder:"FIELD"`
	Input        []string `help:"What was asked of the model, or a hash of it; all that a line has, together." default:"${audit_input}" placeholder:"FIELD"`
	Model        []string `help:"Model." default:"${audit_model}" placeholder:"FIELD"`
	Cost         []string `help:"Cost in dollars." default:"${audit_cost}" placeholder:"FIELD"`
	TokensIn     []string `help:"Tokens in." default:"${audit_tokens_in}" placeholder:"FIELD"`
	TokensCached []string `help:"Tokens in that the provider had cached." default:"${audit_tokens_cached}" placeholder:"FIELD"`
	TokensOut    []string `help:"Tokens out." default:"${audit_tokens_out}" placeholder:"FIELD"`
	Status       []string `help:"HTTP status, or a word such as failed; from 400 on the call was not paid." default:"${audit_status}" placeholder:"FIELD"`
	Error        []string `help:"Anything in it means that the call brought nothing." default:"${audit_error}" placeholder:"FIELD"`
	Cache        []string `help:"true: answered out of a cache, and not paid." default:"${audit_cache}" placeholder:"FIELD"`
	ID           []string `help:"The provider's id of the answer; lines with the same one are about one call." default:"${audit_id}" placeholder:"FIELD"`

	Top    int    `help:"Show so many of the jobs and calls that are worst." default:"5" placeholder:"N"`
	Temp   string `help:"Folder for a temporary file, about a tenth of the unpacked logs; the system's own if it is not given." type:"existingdir" placeholder:"DIR"`
	Sample int    `help:"Read no log: write one of N made-up calls to stdout, to try this with." placeholder:"N"`
	Seed   uint64 `help:"With --sample: another seed, another log." default:"1" placeholder:"N"`
}

// fieldDefaults are the fields that audit looks for when its flags do not name any, for the command line's defaults.
func fieldDefaults() kong.Vars {
	vars := kong.Vars{}
	f := audit.DefaultFields()
	for name, fields := range map[string][]string{
		"time": f.Time, "job": f.Job, "entity": f.Entity, "prompt": f.Prompt, "input": f.Input, "model": f.Model, "cost": f.Cost,
		"tokens_in": f.TokensIn, "tokens_cached": f.TokensCached, "tokens_out": f.TokensOut, "status": f.Status, "error": f.Error, "cache": f.Cache, "id": f.ID,
	} {
		vars["audit_"+name] = strings.Join(fields, ",")
	}
	return vars
}

// fields are those that the flags name; --cost= names none.
func (a *auditCommand) fields() audit.Fields {
	return audit.Fields{Time: a.Time, Job: a.Job, Entity: a.Entity, Prompt: a.Prompt, Input: a.Input, Model: a.Model, Cost: a.Cost,
		TokensIn: a.TokensIn, TokensCached: a.TokensCached, TokensOut: a.TokensOut, Status: a.Status, Error: a.Error, Cache: a.Cache, ID: a.ID}
}

// Run counts the calls that the logs say were paid more than once. It reads no configuration: whoever runs it may have
// none yet. Repeats are findings.
func (a auditCommand) Run(c *call) error {
	if a.Sample != 0 {
		return a.sample(c)
	}
	if a.Top < 1 || a.Top > 1000 {
		return usagef("PO502 --top %d: write a number from 1 to 1000", a.Top)
	}
	sources, err := c.logs(a.Files)
	if err != nil {
		return err
	}
	report, err := audit.Run(c.ctx, sources, audit.Options{Fields: a.fields(), Temp: a.Temp, Top: a.Top, Progress: c.progress()})
	if report == nil {
		return err
	}
	if err := errors.Join(err, show(c, a.asJSON, report, func(w io.Writer) error { return printAudit(w, report, a.Top) })); err != nil {
		return err
	}
	if report.Repeated > 0 {
		return exitError{exitFindings, fmt.Errorf("PO519 %s of %s had been made and paid before", grouped(report.Repeated), calls(report.Calls))}
	}
	return nil
}

func (a auditCommand) sample(c *call) error {
	if a.Sample < 0 || len(a.Files) > 0 {
		return usagef("PO502 --sample %d: write how many calls there shall be, and name no file", a.Sample)
	}
	return audit.Sample(c.Stdout, a.Sample, a.Seed)
}

// logs are the files that a command names.
func (c *call) logs(files []string) (logs []audit.Source, err error) {
	if len(files) == 0 {
		return nil, usagef("PO502 name the files to read, - for stdin; or try it with a made-up log: worker audit --sample 20000 | worker audit -")
	}
	var seen []os.FileInfo
	for i, name := range files {
		if name == "-" && slices.Contains(files[:i], name) {
			return nil, usagef("PO507 - is there twice, and stdin can be read once")
		}
		if name == "-" {
			logs = append(logs, audit.Source{Name: "stdin", Open: func() (io.ReadCloser, error) { return io.NopCloser(c.Stdin), nil }})
			continue
		}
		f, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, usagef("PO507 %w", err)
		case f.IsDir():
			return nil, usagef("PO507 %s is a folder; name the files in it", name)
		}
		for _, s := range seen {
			if os.SameFile(s, f) {
				return nil, usagef("PO507 %s is there twice: all of its calls would be repeats", name)
			}
		}
		seen = append(seen, f)
		logs = append(logs, audit.Source{Name: name, Size: f.Size(), Open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	return logs, nil
}

// progress tells a person every now and then how far an audit is.
func (c *call) progress() func(audit.Progress) {
	told := time.Now()
	return func(p audit.Progress) {
		if time.Since(told) < progressEvery {
			return
		}
		told = time.Now()
		of := ""
		if p.Size > 0 {
			of = fmt.Sprintf(" of %d MB (%d %%)", p.Size/1_000_000, min(p.Read*100/p.Size, 100))
		}
		fmt.Fprintf(c.Stderr, "so far: %d MB%s, %s calls\n", p.Read/1_000_000, of, grouped(p.Calls))
	}
}
