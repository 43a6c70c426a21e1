// Command bench does the same paid work through paidonce and through other systems, side by
// side on one machine, and prints what each took as a table of ratios.
//
//	go run . drain          a full queue is worked off
//	go run . rate           messages come at a steady rate: what a job waits
//	go run . storm          every message asks for a job that is done
//	go run . inflight       all messages are calls under way: what one costs
//	go run . short          a little of drain and storm, in a few minutes
//	go run . limit          the ledger's statements alone, by pgbench: what the server can make of them
//
// It starts the Postgres, the RabbitMQ and the Redis (for asynq) that it needs, on free ports of
// loopback, and stops them again. The first two sync to the disk that holds temporary files, and Postgres commits
// synchronously; -cloud puts a slower disk and a longer way before it. Every system is a
// process of its own (this program again), so that its memory and its CPU are its own; they take
// turns, and of each number the median counts. A run in which a job was paid twice,
// or a result or a message is missing at the end, is an error and no measurement.
//
// It runs on Linux: CPU and memory are read from /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs what args name: a measurement, or one of its workers.
func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to measure: drain, rate, storm, inflight, short or limit")
	}
	switch args[0] {
	case "drain", "rate", "storm", "inflight":
		o, err := parse(args[0], args[1:])
		if err != nil {
			return err
		}
		return measure(ctx, o)
	case "short":
		return short(ctx)
	case "limit":
		return limit(ctx, args[1:])
	case childCommand:
		return child(ctx, args[1:])
	}
	return fmt.Errorf("there is nothing to measure by the name of %s", args[0])
}

// short measures enough to see that nothing is badly wrong, with nothing that the tests do not need.
func short(ctx context.Context) error {
	for _, args := range [][]string{{modeDrain, "-sys", "paidonce,naive,rivertx,river"}, {modeStorm}} {
		o, err := parse(args[0], append(args[1:], "-n", "3000", "-reps", "1"))
		if err != nil {
			return err
		}
		if err := measure(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// options are one measurement.
type options struct {
	mode     string
	systems  []string
	messages int
	repeated float64       // share of messages whose key came before
	work     time.Duration // of a handler
	handlers int           // at once
	conns    int           // to Postgres, of the systems that need many
	reps     int
	size     int     // of a message and of a result, in bytes
	rate     float64 // messages a second, for modeRate
	hold     time.Duration
	fsync    time.Duration // added to each
	trip     time.Duration // added to each request to Postgres
	check    bool
	profile  string // folder for profiles of the workers
}

// What is measured.
const (
	modeDrain    = "drain"
	modeRate     = "rate"
	modeStorm    = "storm"
	modeInflight = "inflight"
)

// usual are the systems that a mode compares unless others are named.
var usual = map[string]string{
	modeDrain:    "paidonce,naive,rivertx,river,watermill,asynq,dbos",
	modeRate:     "paidonce,naive,rivertx,river,watermill,asynq,dbos",
	modeStorm:    "paidonce,naive",
	modeInflight: "paidonce,naive,river",
}

func parse(mode string, args []string) (options, error) {
	o := options{mode: mode}
	f := flag.NewFlagSet("bench "+mode, flag.ContinueOnError)
	names := f.String("sys", usual[mode], "systems, in the order of their turns: "+strings.Join(systemNames(), " "))
	f.IntVar(&o.messages, "n", 10000, "messages")
	f.Float64Var(&o.repeated, "dup", 0.1, "share of messages whose key came before")
	f.DurationVar(&o.work, "d", 0, "how long a handler works")
	f.IntVar(&o.handlers, "g", 200, "handlers at once")
	f.IntVar(&o.conns, "conns", 10, "connections to Postgres, of the systems that use as many as they get")
	f.IntVar(&o.reps, "reps", 3, "turns of each system")
	f.IntVar(&o.size, "size", 1024, "bytes of a message, and of a result")
	f.Float64Var(&o.rate, "rate", 200, "rate: messages a second")
	f.DurationVar(&o.hold, "hold", 20*time.Second, "inflight: how long to look")
	cloud := f.Bool("cloud", false, "-fsync 1ms -trip 500us")
	f.DurationVar(&o.fsync, "fsync", 0, "added to each fsync of Postgres")
	f.DurationVar(&o.trip, "trip", 0, "added to each request to Postgres")
	f.BoolVar(&o.check, "check", false, "a ratio below its floor is an error")
	f.StringVar(&o.profile, "profile", "", "folder for profiles of the workers (go tool pprof), which cost a little themselves")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *cloud {
		o.fsync, o.trip = time.Millisecond, 500*time.Microsecond
	}
	o.systems = strings.Split(*names, ",")
	switch {
	case mode == modeInflight: // a call under way is one message of its own
		o.repeated, o.handlers, o.work = 0, o.messages, time.Hour
	case mode == modeStorm:
		o.repeated = 0 // in the storm itself all are
	}
	for _, name := range o.systems {
		if _, ok := systems[name]; !ok {
			return o, fmt.Errorf("there is no system %s, only %s", name, strings.Join(systemNames(), ", "))
		}
	}
	return o, nil
}
