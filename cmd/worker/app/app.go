// Package app is the program worker: its commands, run in the process of whoever
// calls Run, so that tests run the real ones.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/cmd/worker/config"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
)

// Process is what a command sees of the world around it.
type Process struct {
	Args           []string // without the program's name
	Environ        []string // as os.Environ has it
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Ledger and Queue are what memory: means. nil: new ones, which only a running
	// worker has a use for.
	Ledger *ledgermemory.Ledger
	Queue  *brokermemory.Queue
}

// The exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2 // or configuration
	exitFindings = 3 // or not found
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, a...)}
}

// Run runs the command that the arguments name and returns the exit code. Errors are
// on Stderr then, a line each.
func Run(ctx context.Context, p Process) (code int) {
	c := &call{Process: p, ctx: ctx}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case kongExit:
			code = int(v)
		default:
			panic(v)
		}
	}()
	parsed, err := c.parse()
	if err == nil {
		err = parsed.Run(c)
	}
	return c.report(err)
}

// report prints err and returns the exit code that it stands for.
func (c *call) report(err error) int {
	if err == nil {
		return exitDone
	}
	text := err.Error()
	if c.config != nil {
		text = c.config.Scrub(text)
	}
	fmt.Fprintln(c.Stderr, "worker: "+strings.ReplaceAll(text, "\n", "\nworker: "))
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// kongExit carries an exit that kong asks for (after --help) out of it.
type kongExit int

func (c *call) parse() (*kong.Context, error) {
	k, err := kong.New(&c.commands, kong.Name("worker"), fieldDefaults(), kong.Writers(c.Stdout, c.Stderr),
		kong.Exit(func(code int) { panic(kongExit(code)) }), kong.UsageOnError(),
		kong.Description("Runs paid AI jobs from a queue so that each is paid once.\n\nFlags go before the environment (PAIDONCE_LEDGER_URL and the like), which goes before the file, which goes before the defaults; `worker config show` says which it was. Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 findings or not found."))
	if err != nil {
		panic(err) // the commands below contradict themselves
	}
	parsed, err := k.Parse(c.Args)
	if err != nil {
		return nil, usagef("PO500 %w; worker --help lists the commands", err)
	}
	return parsed, nil
}

// call is one command being run.
type call struct {
	Process
	ctx      context.Context
	commands commands
	config   *config.Config
}

// load reads the configuration. Further checks add their faults to its own, so
// that all are reported at once.
func (c *call) load(checks ...func(*config.Config) error) (*config.Config, error) {
	var flags []config.Flag
	for _, f := range []config.Flag{
		{Name: "--ledger", Path: "ledger.url", Value: c.commands.LedgerURL},
		{Name: "--broker", Path: "broker.url", Value: c.commands.BrokerURL},
		{Name: "--queue", Path: "broker.queue", Value: c.commands.Queue},
	} {
		if f.Value != "" {
			flags = append(flags, f)
		}
	}
	cfg, err := config.Load(config.Options{File: c.commands.File, Environ: c.Environ, Flags: flags, Jobs: bundledRoutes(), Turns: bundledTurns(), Providers: providers()})
	c.config = cfg
	errs := []error{err}
	for _, check := range checks {
		errs = append(errs, check(cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, exitError{exitUsage, err}
	}
	return cfg, nil
}

// environment is the value of a variable, "" if there is none.
func (c *call) environment(name string) string {
	for _, e := range c.Environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// person is whoever runs a command, for the history.
func (c *call) person() string {
	host, err := os.Hostname()
	if err != nil {
		host = "somewhere"
	}
	return cmp.Or(c.environment("USER"), c.environment("LOGNAME"), "somebody") + "@" + host
}
