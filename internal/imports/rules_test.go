package imports

const (
	amqp       = "github.com/rabbitmq/amqp091-go"
	anthropic  = "github.com/anthropics/anthropic-sdk-go/v2"
	aws        = "github.com/aws/aws-sdk-go-v2"
	gomail     = "github.com/wneessen/go-mail"
	gosasl     = "github.com/emersion/go-sasl"
	gosmtp     = "github.com/emersion/go-smtp"
	slackgo    = "github.com/slack-go/slack"
	backoff    = "github.com/cenkalti/backoff/v4"
	goose      = "github.com/pressly/goose/v3"
	kong       = "github.com/alecthomas/kong"
	openai     = "github.com/openai/openai-go/v3"
	pgx        = "github.com/jackc/pgx/v5"
	porcupine  = "github.com/anishathalye/porcupine"
	prometheus = "github.com/prometheus/client_golang"
	smithy     = "github.com/aws/smithy-go"
	sqlite     = "modernc.org/sqlite"
	yaml       = "github.com/goccy/go-yaml"
)

// row says what a package may import beside the standard library, and why no
// more than that.
type row struct {
	own     []string // packages of this module; "x/..." is the tree below x, "*" is all
	modules []string // other modules, with all their packages
	tests   []string // further modules for its tests
	why     string
}

// rules has a row for every package or tree of packages. Arrows point one way:
// cmd/worker -> handlers, adapters -> consumer -> job -> ledger, broker.
// A row may name a package that does not exist yet.
var rules = map[string]row{
	"broker": {
		why: "everybody's fake and every adapter imports it, so it costs nothing: standard library alone"},
	"broker/brokertest": {own: []string{"broker"},
		why: "the suite knows no broker; what differs is data on the harness"},
	"broker/memory": {own: []string{"broker"},
		why: "the broker of tests and of the demo has nothing to install"},
	"broker/rabbitmq": {own: []string{"broker"}, modules: []string{amqp, backoff},
		why: "an adapter knows its interface and its driver; rules that hold for all brokers are in consumer"},
	"broker/sqs": {own: []string{"broker"}, modules: []string{aws, smithy, backoff},
		why: "an adapter knows its interface and its driver; rules that hold for all brokers are in consumer"},
	"broker/...": {own: []string{"broker"},
		why: "an adapter knows its interface and its driver; name the driver in a row of its own"},

	"ledger": {
		why: "job and every adapter import it, so it costs nothing: standard library alone"},
	"ledger/ledgertest": {own: []string{"ledger", "ledger/memory"},
		why: "the suite knows the store under test by its harness, and the memory ledger as the oracle of random operations"},
	"ledger/memory": {own: []string{"ledger"},
		why: "it is the oracle of the other ledgers and shares nothing with them"},
	"ledger/postgres": {own: []string{"ledger"}, modules: []string{pgx, goose},
		why: "pgx is here and nowhere below; the user's transaction comes through OnCommit"},
	"ledger/sealed": {own: []string{"ledger"},
		why: "it stands before any ledger and knows none; the ciphers are the standard library's"},
	"ledger/sqlite": {own: []string{"ledger"}, modules: []string{sqlite},
		why: "the driver is here and nowhere below; the user's transaction comes through OnCommit as an interface"},
	"ledger/...": {own: []string{"ledger"},
		why: "an adapter knows its interface and its driver; name the driver in a row of its own"},

	"submit": {own: []string{"job", "ledger", "broker"}, tests: []string{pgx},
		why: "web servers link it: no consumer, no SDK and no driver may come with it"},

	"prices": {own: []string{"ledger"},
		why: "whoever reads a bill can price a call with it: standard library and the type of money alone"},

	"job": {own: []string{"ledger", "prices", "internal/jitter"}, tests: []string{openai, anthropic},
		why: "every handler imports it: no driver, no SDK and no broker may come with it"},
	"job/jobtest": {own: []string{"job", "ledger", "ledger/memory", "broker", "broker/memory", "consumer", "internal/mortal", "internal/modelserver"},
		why: "users' tests link it: the real consumer on the memory backends and stand-ins of the standard library, no driver, no SDK, no service"},
	"job/...": {own: []string{"job", "ledger", "ledger/memory", "broker", "broker/memory", "consumer"},
		why: "a test kit for users' handlers runs on the memory backends, without a service"},

	"consumer": {own: []string{"broker", "ledger", "job", "prices", "internal/jitter"}, tests: []string{aws},
		why: "it runs on any broker and any ledger, so it knows their interfaces only"},
	"consumer/prom": {own: []string{"consumer", "job", "ledger", "broker"}, modules: []string{prometheus},
		why: "the only package that knows Prometheus"},

	"handlers": {own: []string{"job", "ledger", "ledger/postgres", "ledger/sqlite", "handlers/..."}, modules: []string{openai, anthropic, pgx},
		why: "handlers are written like a user's: job, the SDK of the model, and OnCommit for their own rows"},
	"handlers/...": {own: []string{"job", "ledger", "ledger/postgres", "ledger/sqlite", "handlers/..."}, modules: []string{openai, anthropic, pgx},
		why: "handlers are written like a user's: job, the SDK of the model, and OnCommit for their own rows"},

	"handlers/mail": {own: []string{"job", "ledger"}, modules: []string{gomail},
		why: "whoever sends mail links a mail client, and whoever does not links none"},
	"handlers/slack": {own: []string{"job"}, modules: []string{slackgo},
		why: "whoever posts to Slack links its client, and whoever does not links none"},
	"handlers/webhook": {own: []string{"job", "ledger"},
		why: "a POST needs nothing but the standard library"},
	"handlers/summarize": {own: []string{"job", "handlers/provider"}, modules: []string{openai, anthropic},
		why: "it asks for steps without knowing how they are made: no mail client and no Slack come with it"},

	"handlers/openaifind": {own: []string{"job"}, modules: []string{openai},
		why: "whoever reconciles with one provider links its SDK alone"},
	"handlers/anthropicfind": {own: []string{"job"}, modules: []string{anthropic},
		why: "whoever reconciles with one provider links its SDK alone"},

	"cmd/worker": {own: []string{"*"}, modules: []string{kong, yaml, prometheus},
		why: "the program puts the parts together; drivers and SDKs stay behind the adapters"},
	"cmd/worker/audit": {own: []string{"ledger"},
		why: "it reads logs before anything of ours is adopted: of the ledger it has the type of money, and no store"},
	"cmd/worker/...": {own: []string{"*"}, modules: []string{kong, yaml, prometheus},
		why: "the program puts the parts together; drivers and SDKs stay behind the adapters"},

	"internal/jitter": {
		why: "every handler links it: standard library alone"},
	"internal/modelserver": {tests: []string{openai, anthropic},
		why: "the stand-in model server is linked into the demo: standard library alone"},
	"internal/pgtest": {modules: []string{pgx},
		why: "it starts Postgres for tests and needs its driver, nothing of ours"},
	"internal/rabbittest": {modules: []string{amqp},
		why: "it starts RabbitMQ for tests and needs its driver, nothing of ours"},
	"internal/leaktest": {
		why: "it looks at stacks, in every package's tests: standard library alone"},
	"internal/smtpsink": {modules: []string{gosmtp, gosasl},
		why: "a mail server for tests, which knows nothing of ours"},
	"internal/slackstub": {
		why: "a stand-in for Slack's API, made by nobody's client: standard library alone"},
	"internal/sqstest": {modules: []string{aws},
		why: "it starts an SQS emulator for tests and needs its client, nothing of ours"},
	"internal/sqsfake": {tests: []string{aws, smithy},
		why: "the fake knows the wire, not the SDK: standard library alone; its tests are what the SDK makes of it"},
	"localstack": {tests: []string{aws},
		why: "it runs the emulator's scripts against one, and makes their calls by the SDK"},
	"internal/imports": {
		why: "the policy is checked by the go command and the standard library"},
	"internal/repo": {modules: []string{yaml},
		why: "it reads the repository's own files, the compose file by the module that reads worker.yaml"},
	"internal/outage": {own: []string{"*"}, modules: []string{pgx, prometheus},
		why: "it breaks whole workers and looks at the database and the metrics from outside"},
	"internal/e2e": {own: []string{"*"}, modules: []string{pgx}, tests: []string{anthropic},
		why: "the proofs look at the processes from outside, and into the user's own table; the plain recipe calls by the SDK as its articles do"},
	"internal/linear": {own: []string{"*"}, tests: []string{porcupine},
		why: "it asks real ledgers, and leaves the judgement to a checker that knows none"},
	"internal/...": {own: []string{"*"},
		why: "test support is free within the module; a driver it needs goes into a row of its own"},
}

// linkedInternal are the internal packages that programs need.
var linkedInternal = []string{
	"internal/modelserver", // worker demo answers its own paid calls
	"internal/jitter",      // chance has one place, which a simulation can decide
}
