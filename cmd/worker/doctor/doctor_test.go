package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// well is a set-up with nothing to say but what RabbitMQ never tells.
func well() Facts {
	return Facts{
		Windows: Windows{Lease: time.Minute, Drain: 25 * time.Second, LongestRun: 20 * time.Minute, LongestRoute: 20 * time.Second, MaxRuns: 10, KeyRetention: 400 * 24 * time.Hour},
		Ledger:  Ledger{Server: &postgres.Description{Version: "15.4", SynchronousCommit: "on", Fsync: true}},
		Broker: Broker{Declare: true, RabbitMQ: &rabbitmq.Description{Version: "3.13.0", AckTimeout: 30 * time.Minute,
			Queue:      rabbitmq.QueueDescription{Name: "jobs", Exists: true, Type: "quorum", DeliveryLimit: 1000, DeadLetterTo: "jobs.dead"},
			DeadLetter: rabbitmq.QueueDescription{Name: "jobs.dead", Exists: true, Type: "quorum", DeliveryLimit: 1000000}}},
	}
}

// bare takes from the queue what only a queue that is known has, at a version that has a
// limit of its own.
func (f *Facts) bare() {
	f.Broker.RabbitMQ.Version = "4.1.0"
	f.Broker.RabbitMQ.Queue = rabbitmq.QueueDescription{Name: "jobs", Exists: true}
}

// codes are the findings in short, without the one that RabbitMQ always has.
func codes(f Facts) (cs []string) {
	for _, x := range Findings(f) {
		if x.Code != "PO545" {
			cs = append(cs, fmt.Sprintf("%s %s", x.Code, x.Level))
		}
	}
	return cs
}

func TestFindings(t *testing.T) {
	away := errors.New("connection refused")
	foreign := func(f *Facts) { f.Broker.Declare = false }
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"all is well":        {func(*Facts) {}, nil},
		"foreign, all well":  {foreign, nil},
		"no price":           {func(f *Facts) { f.Unpriced = make([]Unpriced, 2) }, []string{"PO557 warning", "PO557 warning"}},
		"no price, limited":  {func(f *Facts) { f.Unpriced = []Unpriced{{}, {Limits: "budgets.tenant_day_usd 5"}} }, []string{"PO557 warning", "PO628 warning"}},
		"memory":             {func(f *Facts) { f.Ledger, f.Broker = Ledger{Memory: true}, Broker{Memory: true} }, []string{"PO017 warning", "PO018 warning"}},
		"no ledger":          {func(f *Facts) { f.Ledger = Ledger{Err: away} }, []string{"PO530 error"}},
		"no schema":          {func(f *Facts) { f.Ledger.Schema = away }, []string{"PO531 error"}},
		"no handler":         {func(f *Facts) { f.Ledger.Unhandled = make([]ledger.WaitingCount, 2) }, []string{"PO634 warning", "PO634 warning"}},
		"a brief life":       {func(f *Facts) { f.Windows.Brief = make([]Brief, 1) }, []string{"PO635 warning"}},
		"replica":            {func(f *Facts) { f.Ledger.Server.Replica = true }, []string{"PO532 error"}},
		"no fsync":           {func(f *Facts) { f.Ledger.Server.Fsync = false }, []string{"PO533 error"}},
		"owner":              {func(f *Facts) { f.Ledger.Server.Owner = true }, []string{"PO654 info"}},
		"asynchronous":       {func(f *Facts) { f.Ledger.Server.SynchronousCommit = "off" }, []string{"PO534 error"}},
		"local, alone":       {func(f *Facts) { f.Ledger.Server.SynchronousCommit = "local" }, nil},
		"local, replicated":  {func(f *Facts) { f.Ledger.Server.SynchronousCommit, f.Ledger.Server.Waits = "local", true }, []string{"PO534 warning"}},
		"off, replicated":    {func(f *Facts) { f.Ledger.Server.SynchronousCommit, f.Ledger.Server.Waits = "off", true }, []string{"PO534 error"}},
		"on, replicated":     {func(f *Facts) { f.Ledger.Server.Waits = true }, nil},
		"replica behind":     {func(f *Facts) { f.Ledger.Server.Standbys = 1 }, []string{"PO535 warning"}},
		"replica in step":    {func(f *Facts) { f.Ledger.Server.Standbys, f.Ledger.Server.Waits = 1, true }, nil},
		"no broker":          {func(f *Facts) { f.Broker.Err = away }, []string{"PO536 error"}},
		"queue to come":      {func(f *Facts) { f.Broker.RabbitMQ.Queue.Exists = false }, []string{"PO537 info"}},
		"no queue":           {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.Exists = false }, []string{"PO537 error"}},
		"dead queue to come": {func(f *Facts) { f.Broker.RabbitMQ.DeadLetter.Exists = false }, []string{"PO538 info"}},
		"no dead queue":      {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.DeadLetter.Exists = false }, []string{"PO538 error"}},
		"not to be known":    {func(f *Facts) { f.Broker.RabbitMQ.Queue.Unknown, f.Broker.RabbitMQ.Queue.Type = "403", "" }, []string{"PO539 info"}},
		"dead queue unknown": {func(f *Facts) { f.Broker.RabbitMQ.DeadLetter.Unknown, f.Broker.RabbitMQ.DeadLetter.Type = "403", "" }, []string{"PO539 info"}},
		"others' dead queue": {func(f *Facts) { f.Broker.RabbitMQ.DeadLetter.Differs = []string{"x is y"} }, []string{"PO540 error"}},
		"others' arguments":  {func(f *Facts) { f.Broker.RabbitMQ.Queue.Differs = []string{"x is y"} }, []string{"PO540 error"}},
		"foreign arguments":  {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.Differs = []string{"x is y"} }, nil},
		"classic":            {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.Type = "classic" }, []string{"PO541 warning"}},
		"classic dead":       {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.DeadLetter.Type = "classic" }, []string{"PO541 warning"}},
		"stream":             {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.Type = "stream" }, []string{"PO541 error"}},
		"no retry queue":     {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Missing = []string{"jobs.retry.1"} }, []string{"PO542 error"}},
		"retry to come":      {func(f *Facts) { f.Broker.RabbitMQ.Missing = []string{"jobs.retry.1"} }, nil},
		// 20 leases, 10 runs, 3 to spare
		"limit too low":     {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.DeliveryLimit = 32 }, []string{"PO543 warning"}},
		"limit just enough": {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.DeliveryLimit = 33 }, nil},
		"no limit": {func(f *Facts) {
			foreign(f)
			f.Broker.RabbitMQ.Queue.DeliveryLimit = 0
			f.Broker.RabbitMQ.Queue.DeadLetterTo = ""
		}, nil},
		"limit of version 4": {func(f *Facts) {
			foreign(f)
			f.Broker.RabbitMQ.Queue.DeliveryLimit = 0
			f.Broker.RabbitMQ.Version = "4.1.0"
		}, []string{"PO543 warning"}},
		"limit of version 4, enough": {func(f *Facts) {
			foreign(f)
			f.Broker.RabbitMQ.Queue.DeliveryLimit, f.Broker.RabbitMQ.Version = 0, "4.1.0"
			f.Windows.LongestRun = 7 * time.Minute // and 13
		}, nil},
		"limit of version 4, not enough": {func(f *Facts) {
			foreign(f)
			f.Broker.RabbitMQ.Queue.DeliveryLimit, f.Broker.RabbitMQ.Version = 0, "4.1.0"
			f.Windows.LongestRun = 7*time.Minute + 1 // counts as eight leases
		}, []string{"PO543 warning"}},
		"no version":                 {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.DeliveryLimit, f.Broker.RabbitMQ.Version = 0, "" }, nil},
		"no queue at version 4":      {func(f *Facts) { foreign(f); f.bare(); f.Broker.RabbitMQ.Queue.Exists = false }, []string{"PO537 error"}},
		"not to be known, version 4": {func(f *Facts) { foreign(f); f.bare(); f.Broker.RabbitMQ.Queue.Unknown = "403" }, []string{"PO539 info"}},
		"classic at version 4":       {func(f *Facts) { foreign(f); f.bare(); f.Broker.RabbitMQ.Queue.Type = "classic" }, []string{"PO541 warning"}},
		"quorum at version 4":        {func(f *Facts) { foreign(f); f.bare(); f.Broker.RabbitMQ.Queue.Type = "quorum" }, []string{"PO543 warning", "PO544 warning"}},
		"dead letters lost":          {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.DeadLetterTo = "" }, []string{"PO544 warning"}},
		"dead letters astray":        {func(f *Facts) { foreign(f); f.Broker.RabbitMQ.Queue.DeadLetterTo = "x" }, []string{"PO544 warning"}},
		"drain below a call":         {func(f *Facts) { f.Windows.LongestRoute = 26 * time.Second }, []string{"PO550 info"}},
		"drain as long as it":        {func(f *Facts) { f.Windows.LongestRoute = 25 * time.Second }, nil},
		"drain past the grace":       {func(f *Facts) { f.Windows.Drain = 26 * time.Second }, []string{"PO551 info"}},
	} {
		f := well()
		c.change(&f)
		if got := codes(f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for _, x := range Findings(f) {
			if x.Fix == "" || x.Text == "" || x.Part == "" {
				t.Errorf("%s: %+v lacks something", name, x)
			}
		}
	}
}

// What a finding says of a limit, and proposes.
func TestTextsAboutTheLimit(t *testing.T) {
	f := well()
	q := &f.Broker.RabbitMQ.Queue
	for _, c := range []struct {
		limit     int64
		run       time.Duration
		to        string
		code      string
		text, fix string // parts
	}{
		{32, 20 * time.Minute, "jobs.dead", "PO543", "after 32 hand-outs, and every lost connection counts as one; a job may need 33", "to 1000"},
		{1000, 2000 * time.Minute, "jobs.dead", "PO543", "a job may need 2013", "to 2013"},
		{1000, 20 * time.Minute, "", "PO544", "more than 1000 times are lost; worker dlq reads jobs.dead", "jobs.dead"},
		{1000, 20 * time.Minute, "other", "PO544", "more than 1000 times go to other; worker dlq reads jobs.dead", "jobs.dead"},
	} {
		q.DeliveryLimit, q.DeadLetterTo, f.Windows.LongestRun = c.limit, c.to, c.run
		fs := Queue(f.Broker, f.Windows)
		if len(fs) != 2 || fs[0].Code != c.code || !strings.Contains(fs[0].Text, c.text) || !strings.Contains(fs[0].Fix, c.fix) {
			t.Errorf("limit %d, run %s, to %q: %+v", c.limit, c.run, c.to, fs)
		}
	}
}

// The ack timeout is said for RabbitMQ always, and what it means for long runs.
func TestAckTimeoutIsSaid(t *testing.T) {
	f := well()
	for run, want := range map[time.Duration]string{
		20 * time.Minute: "RabbitMQ tells no client its consumer_timeout; the worker counts on 30m0s",
		25 * time.Minute: "RabbitMQ tells no client its consumer_timeout; the worker counts on 30m0s and hands runs of more than 24m0s to the ledger",
	} {
		f.Windows.LongestRun = run
		fs := Queue(f.Broker, f.Windows)
		if len(fs) != 1 || fs[0].Text != want || fs[0].Level != Info {
			t.Errorf("run of %s: %+v", run, fs)
		}
	}
}
