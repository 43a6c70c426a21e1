package app

import "time"

// commands is the command line.
type commands struct {
	File      string `name:"config" help:"Configuration file; worker.yaml if it is there." placeholder:"FILE"`
	LedgerURL string `name:"ledger" help:"Ledger, such as sqlite:FILE or postgres://user:password@host/database." placeholder:"URL"`
	BrokerURL string `name:"broker" help:"Broker, such as amqp://user:password@host, or sqs:." placeholder:"URL"`
	Queue     string `help:"Queue." placeholder:"NAME"`

	Run     runCommand  `cmd:"" help:"Receive and run jobs until SIGTERM, then drain. A second SIGTERM ends the drain at once."`
	Demo    demoCommand `cmd:"" help:"The whole story on one screen, with nothing installed."`
	Migrate struct {
		Up     migrateUp     `cmd:"" help:"Make or upgrade the ledger's schema."`
		Status migrateStatus `cmd:"" help:"Say what schema the ledger has, and which this program wants."`
		Print  migratePrint  `cmd:"" help:"Print the SQL, for whoever may change the database."`
	} `cmd:"" help:"Schema of the ledger."`
	Submit submitCommand `cmd:"" help:"Send one message per line of JSON to the queue; prints the key of each."`
	Jobs   struct {
		List    listCommand    `cmd:"" help:"List jobs, newest first."`
		Show    showCommand    `cmd:"" help:"Show one job: state, runs, attempts, result, history."`
		Resolve resolveCommand `cmd:"" help:"Decide about an unknown job: it happened and this is the answer, it never happened, or give up."`
		Settle  settleCommand  `cmd:"" help:"Give an attempt the answer that its provider made, as its JSON came; for programs that have it from a webhook, a log or a console."`
		Cancel  cancelCommand  `cmd:"" help:"Cancel a job; a running one ends at its next call."`
		Rerun   rerunCommand   `cmd:"" help:"Run an ended job again on purpose: a new generation makes and pays all calls anew; the earlier result is kept. The same token twice does it once."`
		Retry   retryCommand   `cmd:"" help:"Put failed jobs back: answers that were paid for are used, not paid again. --dry-run says first what would be made again."`
	} `cmd:"" help:"Look at jobs, and decide about those that are unknown."`
	Unknown struct {
		List unknownCommand `cmd:"" help:"List unknown jobs, the oldest first: each open call with its age, the ids to look for at the provider, and what it may have cost."`
	} `cmd:"" help:"What may have been paid and nobody knows."`
	Budgets budgetsCommand `cmd:"" help:"List what tenants and jobs have spent of their limits of a day."`
	Report  reportCommand  `cmd:"" help:"Add up jobs, calls, what they cost, what was avoided and wasted, and calls whose outcome is not known."`
	Audit   auditCommand   `cmd:"" help:"Count the calls that existing logs say were paid more than once, what they cost, and when they came. Reads JSON lines and nothing else: no ledger, no configuration. Exit 3 when there are any."`
	DLQ     struct {
		List    dlqListCommand    `cmd:"" help:"List dead letters, each asked of the ledger, with what a redrive would do and cost."`
		Redrive dlqRedriveCommand `cmd:"" help:"Drop the dead letters whose job is done, put back those that can run, leave the rest."`
	} `cmd:"" name:"dlq" help:"The dead-letter queue."`
	Prices struct {
		List  pricesListCommand  `cmd:"" help:"List the prices that costs are computed by."`
		Check pricesCheckCommand `cmd:"" help:"Say everything that is wrong with a file of prices, and which routes have no price. Exit 3 when one has none."`
	} `cmd:"" help:"What models cost."`
	Purge  purgeCommand  `cmd:"" help:"Forget what is past its retention now; workers do it every hour. A signal ends it after the step that it is at."`
	Doctor doctorCommand `cmd:"" help:"Reach every part, check the windows against each other and the queue; one coded finding and its fix a line. Changes nothing. Exit 3 when there is more than info."`
	Config struct {
		Show configCommand `cmd:"" help:"Show the effective configuration and where each value came from, secrets hidden."`
	} `cmd:"" help:"The configuration."`
	Version     versionCommand `cmd:"" help:"Say which version this is."`
	Healthcheck healthCommand  `cmd:"" help:"Ask the worker at http.listen whether it lives; for images without a shell."`
}

type asJSON struct {
	JSON bool `name:"json" help:"One JSON document on stdout."`
}

type runCommand struct{}

type demoCommand struct{}

type migrateUp struct{}

type migrateStatus struct{ asJSON }

type migratePrint struct {
	Roles bool `help:"Print the roles instead, with the rights that workers, readers and producers need: for the owner of a Postgres schema, once it is there and after each upgrade."`
}

type submitCommand struct {
	Job   string `required:"" help:"Name of the job, such as ticket.summary." placeholder:"NAME"`
	Input string `help:"File with one JSON object a line; stdin if it is not given." placeholder:"FILE"`

	Wait    bool          `help:"Wait until every job has ended or is held, and print what became of each as a line of JSON instead of its key."`
	Timeout time.Duration `help:"How long --wait waits at most; 0s: until it is interrupted." default:"0s" placeholder:"D"`
}

type budgetsCommand struct {
	asJSON
	Day    string `help:"A day of UTC, such as 2026-11-01, or how long ago it was, such as 1d." default:"0d" placeholder:"D"`
	Tenant string `help:"Only this tenant." placeholder:"T"`
}

type listCommand struct {
	asJSON
	State  string `help:"ready, running, unknown, done, failed or cancelled." placeholder:"S"`
	Job    string `help:"Only jobs of this name." placeholder:"NAME"`
	Tenant string `help:"Only jobs of this tenant." placeholder:"T"`
	Class  string `help:"Only jobs whose last run ended so, such as budget, calls or lifetime; of failed ones if --state does not say otherwise." placeholder:"C"`
	Limit  int    `help:"At most so many." default:"100" placeholder:"N"`
}

type showCommand struct {
	asJSON
	Key    string `arg:"" help:"Key of the job, as jobs list prints it."`
	Answer int    `help:"Print the captured answer of attempt N instead, as it was received." placeholder:"N"`
}

// unknownFilter says which unknown jobs a command is about.
type unknownFilter struct {
	Job       string        `help:"Only those of this job." placeholder:"NAME"`
	Tenant    string        `help:"Only those of this tenant." placeholder:"T"`
	OlderThan time.Duration `name:"older-than" help:"Only those that are unknown for longer, such as 2h." placeholder:"D"`
	Limit     int           `help:"No more than so many, oldest jobs first." default:"100" placeholder:"N"`
}

func (f unknownFilter) some() bool { return f.Job != "" || f.Tenant != "" || f.OlderThan != 0 }

type unknownCommand struct {
	asJSON
	unknownFilter
}

type resolveCommand struct {
	unknownFilter
	Key    string `arg:"" optional:"" help:"Key of the job, as jobs list prints it."`
	All    bool   `help:"All unknown jobs, with --absent or --fail; or those of --job, --tenant, --older-than."`
	DryRun bool   `name:"dry-run" help:"Of more than one: change nothing, show which these are and what is at risk."`
	Result string `xor:"verdict" required:"" help:"It happened: FILE holds the call's answer, in JSON (- is stdin)." placeholder:"FILE"`
	Absent bool   `xor:"verdict" required:"" help:"It never happened: the job runs again and the call may be sent again."`
	Fail   bool   `xor:"verdict" required:"" help:"Give the job up."`
	Reason string `required:"" help:"Why; kept in the job's history." placeholder:"TEXT"`
	Call   string `help:"With --result, which call it answers; needed when several are open." placeholder:"NAME"`
}

type settleCommand struct {
	Key     string `arg:"" help:"Key of the job, as jobs list prints it."`
	Attempt string `required:"" help:"Number of the attempt, as jobs show prints it, or its client request id, which is in the answer's metadata." placeholder:"N"`
	Body    string `required:"" help:"FILE holds the provider's own JSON object of the answer (- is stdin)." placeholder:"FILE"`
	Reason  string `help:"Where it is from; kept in the job's history." placeholder:"TEXT"`
}

type cancelCommand struct {
	Key    string `arg:"" help:"Key of the job, as jobs list prints it."`
	Reason string `required:"" help:"Why; kept in the job's history." placeholder:"TEXT"`
}

type rerunCommand struct {
	Key             string `arg:"" help:"Key of the job, as jobs list prints it."`
	Reason          string `required:"" help:"Why; kept in the job's history." placeholder:"TEXT"`
	Token           string `required:"" help:"A text of your own for this order: giving it twice does it once." placeholder:"T"`
	AcceptDoublePay bool   `name:"accept-double-pay" help:"Run an unknown job again, too: its open calls stay unknown and may be billed beside the new ones."`
}

type retryCommand struct {
	asJSON
	Keys            []string `arg:"" optional:"" name:"key" help:"Keys of failed jobs, as jobs list prints them."`
	Job             string   `help:"All failed jobs of this name." placeholder:"NAME"`
	Tenant          string   `help:"All failed jobs of this tenant." placeholder:"T"`
	Class           string   `help:"All failed jobs of this class, such as budget, calls or lifetime." placeholder:"C"`
	All             bool     `help:"All failed jobs."`
	Waiting         bool     `name:"over-day-budget" help:"Instead of failed jobs those that wait because a budget of the day is used up: they look again at once."`
	Limit           *int     `help:"Retry no more than so many, newest first; 100 if it is not said, and with --over-day-budget all." placeholder:"N"`
	DryRun          bool     `name:"dry-run" help:"Change nothing; show what would be made again."`
	AcceptDoublePay bool     `name:"accept-double-pay" help:"Make calls again whose outcome nobody knows; without it such jobs are left."`
	Reason          string   `help:"Why; kept in each job's history. Needed unless it is a dry run." placeholder:"TEXT"`
}

// dlqFilter says which dead letters a command is about.
type dlqFilter struct {
	Job    string `help:"Only those of this job." placeholder:"NAME"`
	Tenant string `help:"Only those of this tenant." placeholder:"T"`
	Match  string `help:"Only those whose reason contains this text, such as delivery_limit (RabbitMQ) or maxReceiveCount (SQS)." placeholder:"TEXT"`
	Limit  int    `help:"Look at no more than so many, oldest first." default:"1000" placeholder:"N"`
}

type dlqListCommand struct {
	asJSON
	dlqFilter
}

type dlqRedriveCommand struct {
	asJSON
	dlqFilter
	DryRun bool   `name:"dry-run" help:"Change nothing; show what would become of each, and its cost."`
	Reason string `help:"Why; logged with your name. Needed unless it is a dry run." placeholder:"TEXT"`
}

type pricesListCommand struct{ asJSON }

type pricesCheckCommand struct {
	asJSON
	File string `arg:"" optional:"" help:"File of prices; the configured one, or else the built-in table, if it is not given." placeholder:"FILE"`
}

type purgeCommand struct{ asJSON }

type doctorCommand struct{ asJSON }

type configCommand struct{ asJSON }

type versionCommand struct{ asJSON }

type healthCommand struct {
	Ready bool `help:"Ask whether it can take work, too."`
}
