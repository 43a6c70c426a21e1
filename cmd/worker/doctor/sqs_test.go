package doctor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
)

const day = 24 * time.Hour

// wellAtSQS is a set-up at SQS with nothing to say.
func wellAtSQS() Facts {
	f := well()
	f.Broker = Broker{SQS: &sqs.Description{URL: "https://sqs.example/1/jobs", Visibility: time.Minute, Retention: 4 * day, MaxMessage: 1 << 20,
		RedriveTarget: "arn:dead", MaxReceives: 1000,
		Dead: sqs.DeadQueue{Configured: true, Exists: true, URL: "https://sqs.example/1/jobs-dead", ARN: "arn:dead", Retention: 14 * day, MaxMessage: 1 << 20}}}
	return f
}

func TestFindingsAtSQS(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts, *sqs.Description)
		want   []string
	}{
		"all is well":              {func(*Facts, *sqs.Description) {}, nil},
		"no queue":                 {func(f *Facts, _ *sqs.Description) { f.Broker.Err = fmt.Errorf("describe: %w", broker.ErrUnroutable) }, []string{"PO537 error"}},
		"queue to come":            {func(f *Facts, _ *sqs.Description) { f.Broker.Err, f.Broker.Declare = broker.ErrUnroutable, true }, []string{"PO537 info"}},
		"visibility too short":     {func(_ *Facts, d *sqs.Description) { d.Visibility = 17 * time.Second }, []string{"PO549 error"}},
		"visibility enough":        {func(_ *Facts, d *sqs.Description) { d.Visibility = 18 * time.Second }, nil},
		"visibility set longer":    {func(f *Facts, d *sqs.Description) { d.Visibility = 5 * time.Second; f.Windows.Visibility = time.Minute }, []string{"PO552 warning"}},
		"visibility set shorter":   {func(f *Facts, _ *sqs.Description) { f.Windows.Visibility = 30 * time.Second }, nil},
		"visibility set the same":  {func(f *Facts, _ *sqs.Description) { f.Windows.Visibility = time.Minute }, nil},
		"receives without a limit": {func(_ *Facts, d *sqs.Description) { d.MaxReceives = 0 }, nil},
		"receives too few":         {func(_ *Facts, d *sqs.Description) { d.MaxReceives = 32 }, []string{"PO543 warning"}},
		"receives enough":          {func(_ *Facts, d *sqs.Description) { d.MaxReceives = 33 }, nil},
		"run too long":             {func(f *Facts, _ *sqs.Description) { f.Windows.LongestRun = 12 * time.Hour; f.Windows.Lease = time.Hour }, []string{"PO553 warning"}},
		"run just short enough": {func(f *Facts, _ *sqs.Description) {
			f.Windows.LongestRun = 12*time.Hour - 1
			f.Windows.Lease = time.Hour
		}, nil},
		"no dead queue":          {func(_ *Facts, d *sqs.Description) { d.Dead = sqs.DeadQueue{}; d.MaxReceives = 0 }, []string{"PO538 error"}},
		"dead queue to come":     {func(f *Facts, d *sqs.Description) { f.Broker.Declare = true; d.Dead = sqs.DeadQueue{} }, []string{"PO538 info"}},
		"dead queue gone":        {func(_ *Facts, d *sqs.Description) { d.Dead = sqs.DeadQueue{Configured: true} }, []string{"PO538 error"}},
		"gone, and to come":      {func(f *Facts, d *sqs.Description) { f.Broker.Declare = true; d.Dead = sqs.DeadQueue{Configured: true} }, []string{"PO538 info"}},
		"declared, all well":     {func(f *Facts, _ *sqs.Description) { f.Broker.Declare = true }, nil},
		"both FIFO":              {func(_ *Facts, d *sqs.Description) { d.FIFO, d.Dead.FIFO = true, true }, nil},
		"FIFO behind standard":   {func(_ *Facts, d *sqs.Description) { d.Dead.FIFO = true }, []string{"PO546 error"}},
		"types differ":           {func(_ *Facts, d *sqs.Description) { d.FIFO = true }, []string{"PO546 error"}},
		"redriven elsewhere":     {func(_ *Facts, d *sqs.Description) { d.RedriveTarget = "arn:other" }, []string{"PO544 warning"}},
		"no redrive policy":      {func(_ *Facts, d *sqs.Description) { d.RedriveTarget = "" }, nil},
		"key forgotten":          {func(f *Facts, _ *sqs.Description) { f.Windows.KeyRetention = 18*day - 1 }, []string{"PO547 warning"}},
		"key kept":               {func(f *Facts, _ *sqs.Description) { f.Windows.KeyRetention = 18 * day }, nil},
		"dead letters vanish":    {func(_ *Facts, d *sqs.Description) { d.Dead.Retention = 4 * day }, []string{"PO548 warning"}},
		"dead letters stay":      {func(_ *Facts, d *sqs.Description) { d.Dead.Retention = 4*day + time.Second }, nil},
		"FIFO letters stay":      {func(_ *Facts, d *sqs.Description) { d.FIFO, d.Dead.FIFO, d.Dead.Retention = true, true, 4*day }, nil},
		"dead letters larger":    {func(_ *Facts, d *sqs.Description) { d.MaxMessage = 1 << 18 }, nil},
		"dead letters too small": {func(_ *Facts, d *sqs.Description) { d.Dead.MaxMessage = 1 << 18 }, []string{"PO554 warning"}},
	} {
		f := wellAtSQS()
		c.change(&f, f.Broker.SQS)
		if got := codes(f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
