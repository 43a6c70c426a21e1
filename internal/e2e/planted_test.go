package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/planted"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// clean wants no secret in what somebody may read. Every World looks at all that its processes print, and at every row.
func (w *World) clean(what, text string) {
	w.t.Helper()
	for _, found := range planted.Find(text) {
		w.t.Errorf("%s shows a secret: %s", what, found)
	}
}

// cleanRows wants no secret in any row of the database, whoever's.
func (w *World) cleanRows() {
	w.t.Helper()
	for _, found := range secretRows(w.t, w.URL) {
		w.t.Errorf("a secret is stored: %s", found)
	}
}

// secretRows looks through every column of every table.
func secretRows(t *testing.T, url string) (found []string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer stop()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	names, err := query[string](ctx, c, `select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p') and not c.relispartition and n.nspname not in ('pg_catalog', 'information_schema')`)
	if err != nil || len(names) < 12 {
		t.Fatalf("tables %v, %v", names, err)
	}
	for _, name := range names {
		rows, err := query[string](ctx, c, "select t::text from "+name+" t where t::text ~ $1 limit 3", strings.Join(planted.Forms(), "|"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			found = append(found, name+": "+strings.Join(planted.Find(r), " "))
		}
	}
	return found
}

func query[T any](ctx context.Context, c *pgx.Conn, sql string, args ...any) ([]T, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// echoing stands before a model server and repeats the credentials of requests that ask for it.
func echoing(t *testing.T, model string) string {
	t.Helper()
	to, err := url.Parse(model)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		key := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
		rw.Header().Set("X-Request-Id", "req_echo")
		switch {
		case bytes.Contains(body, []byte("echo-401")):
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(rw, `{"error":{"message":"Incorrect API key provided: %s.","type":"invalid_request_error","code":"invalid_api_key"}}`, key)
		case bytes.Contains(body, []byte("echo-502")):
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(rw, `{"error":{"message":"upstream refused %s","type":"server_error"}}`, key)
		default:
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			forward.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// secretive is a World all of whose logins are secrets that can be recognised. Its workers have the rights of the workers' role.
func secretive(t *testing.T) (*World, *smtpsink.Sink, *slackstub.Stub) {
	t.Helper()
	w := NewWorld(t, Options{Routes: map[string]string{moderate.Name: "anthropic 5s"}})
	sink, err := smtpsink.Start(smtpsink.Options{User: "worker", Password: planted.Secret("smtp")})
	if err != nil {
		t.Fatal(err)
	}
	stub, err := slackstub.Start(slackstub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close(); stub.Close() })
	at := echoing(t, w.Models.URL())
	for name, v := range map[string]string{
		"LEDGER_URL": asWorker(t, w.URL), "LEDGER_ENCRYPTION_KEYS": "k1:" + planted.Key(), "LOG_LEVEL": "debug",
		"BROKER_URL": w.brokerAs(t, "teller", planted.Secret("amqp")), "PROVIDERS_OPENAI_BASE_URL": at + "/v1/",
		"PROVIDERS_ANTHROPIC_BASE_URL": "http://127.0.0.1:1", // nobody listens
		"STEPS_EMAIL_SMTP_URL":         "smtp://worker:" + planted.Secret("smtp") + "@" + sink.Addr(), "STEPS_EMAIL_FROM": "support@acme.example",
		"STEPS_SLACK_BASE_URL": stub.URL(), "STEPS_SLACK_TOKEN": slackstub.Token,
	} {
		w.env = append(w.env, "PAIDONCE_"+name+"="+v)
	}
	return w, sink, stub
}

// asWorker is the database's URL for a role with the rights of the shipped workers' role, and a password.
func asWorker(t *testing.T, direct string) string {
	t.Helper()
	own := fmt.Sprintf("e%x_", time.Now().UnixNano())
	pgtest.Exec(t, direct, strings.ReplaceAll(postgres.Roles()+invoice.Grants(), "paidonce_", own))
	pgtest.Exec(t, direct, fmt.Sprintf("alter role %sworker login password '%s'", own, planted.Secret("pg")))
	t.Cleanup(func() {
		for _, role := range []string{"worker", "reader", "producer"} {
			pgtest.Exec(t, direct, fmt.Sprintf("drop owned by %[1]s; drop role %[1]s", own+role))
		}
	})
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(own+"worker", planted.Secret("pg"))
	return u.String()
}

// brokerAs is the broker's URL for another user.
func (w *World) brokerAs(t *testing.T, name, password string) string {
	t.Helper()
	direct := w.Queue.Env["PAIDONCE_BROKER_URL"]
	rabbittest.Start(t).User(t, direct, name, password)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

// TestSecretsStayHidden drives a worker whose every login is a planted secret through success and through what goes wrong, by the role and the user
// that it has rights for. No secret is in a log, an output, a metric or a row; every World looks for that, and this one shows that it would find them.
func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	w, sink, stub := secretive(t)
	good, no, lost := Ticket("good"), Ticket("echo-401"), Ticket("echo-502")
	good.Line = strings.TrimSuffix(good.Line, "}") + `,"notify":{"email":"customer@acme.example","slack":"#support"}}`
	for _, d := range []*Doc{&no, &lost} { // the text goes into the prompt
		id := strings.Split(d.Key, ":")[2]
		d.Line = strings.Replace(d.Line, "It was charged twice.", id, 1)
	}
	invoice := Invoice("1")
	w.Submit(2, good, no, lost, invoice)
	w.Must(`{"tenant":"acme","content":"c","revision":1,"text":"x"}`, "submit", "--job", moderate.Name)
	p := w.Start("a")
	w.UntilStates(map[string]ledger.State{good.Key: ledger.Done, no.Key: ledger.Failed, lost.Key: ledger.Unknown, invoice.Key: ledger.Done,
		"acme:email:good:v1": ledger.Done, "acme:slack:good:v1": ledger.Done})
	p.Says(`"class":"refused"|PO371 nothing was sent to 127.0.0.1:1`)
	if len(sink.Mails()) != 1 || sink.Mails()[0].User != "worker" || len(stub.Messages()) != 1 {
		t.Errorf("%d mails and %d posts", len(sink.Mails()), len(stub.Messages()))
	}
	if e := w.Job(no.Key).Error; e == nil || !strings.Contains(e.Text, "Incorrect API key provided: Bearer (hidden)") && !strings.Contains(e.Text, "Incorrect API key provided: (hidden)") {
		t.Errorf("the refusal is kept as %+v", e)
	}
	w.looks(p, good.Key, no.Key, lost.Key, invoice.Key)
	p.Leave()
	w.fails(t)

	c, err := pgx.Connect(t.Context(), w.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	const put = "update paidonce.job set error_text = $1 where key = $2"
	if _, err := c.Exec(t.Context(), put, planted.Secret("sk"), no.Key); err != nil {
		t.Fatal(err)
	}
	if found := secretRows(t, w.URL); len(found) != 1 || !strings.HasPrefix(found[0], "paidonce.job:") {
		t.Errorf("a row with a secret is found as %q", found)
	}
	if _, err := c.Exec(t.Context(), put, "", no.Key); err != nil {
		t.Fatal(err)
	}
}

// UntilStates waits for jobs and steps.
func (w *World) UntilStates(want map[string]ledger.State) {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		jobs := w.Jobs()
		for key, state := range want {
			if jobs[key].State != state {
				return false, fmt.Sprintf("%s is %q, want %s", key, jobs[key].State, state)
			}
		}
		return true, ""
	})
}

// looks runs every command that shows something, and reads what the worker serves.
func (w *World) looks(p *Proc, keys ...string) {
	w.t.Helper()
	commands := [][]string{{"config", "show"}, {"doctor"}, {"jobs", "list"}, {"unknown", "list"}, {"report"}, {"report", "--by", "day"}, {"budgets"},
		{"dlq", "list"}, {"dlq", "redrive", "--dry-run"}, {"prices", "list"}, {"migrate", "status"}, {"migrate", "print"}, {"version"}, {"purge"}, {"--help"}}
	for _, key := range keys {
		commands = append(commands, []string{"jobs", "show", key})
	}
	for _, c := range commands {
		if code, _, _ := w.Run("", c...); code != 0 && code != 3 {
			w.t.Errorf("worker %v: exit %d", c, code)
		}
		w.Run("", append(c, "--json")...) // or a refusal, where there is none
	}
	w.Run("", "jobs", "show", keys[0], "--answer", "1")
	w.Run("", "healthcheck") // it does not know the port
	at := "http://" + p.Says(`"setting":"http.listen","address":"([^"]+)"`)
	for _, path := range []string{"/metrics", "/readyz?verbose", "/livez", "/debug/pprof/cmdline", "/"} {
		r, err := http.Get(at + path)
		if err != nil {
			w.t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			w.t.Fatal(err)
		}
		w.clean(path, string(body))
	}
}

// fails runs commands with whose configuration something is wrong: nobody listens, a login is refused, a file is broken. None shows
// what it was given.
func (w *World) fails(t *testing.T) {
	t.Helper()
	env := w.env
	defer func() { w.env = env }()
	secret := planted.Secret("wrong")
	for name, broken := range map[string][]string{
		"nobody listens": {"PAIDONCE_LEDGER_URL=postgres://u:" + secret + "@127.0.0.1:1/d", "PAIDONCE_BROKER_URL=amqp://u:" + secret + "@127.0.0.1:1/",
			"PAIDONCE_STEPS_EMAIL_SMTP_URL=smtp://u:" + secret + "@127.0.0.1:1", "PAIDONCE_STEPS_SLACK_BASE_URL=http://127.0.0.1:1/"},
		"logins are refused": {"PAIDONCE_LEDGER_URL=" + strings.Replace(w.URL, "postgres@", "nobody:"+secret+"@", 1), "PAIDONCE_BROKER_URL=" + withPassword(t, w.Queue.Env["PAIDONCE_BROKER_URL"], secret),
			"PAIDONCE_STEPS_SLACK_TOKEN=" + secret, "PAIDONCE_STEPS_EMAIL_SMTP_URL=" + strings.Replace(last(env, "PAIDONCE_STEPS_EMAIL_SMTP_URL="), planted.Secret("smtp"), secret, 1)},
		"addresses are none": {"PAIDONCE_LEDGER_URL=postgres//u:" + secret + "@h", "PAIDONCE_BROKER_URL=" + secret, "PAIDONCE_STEPS_EMAIL_SMTP_URL=smtp:" + secret,
			"PAIDONCE_LEDGER_ENCRYPTION_KEYS=" + secret, "PAIDONCE_STEPS_SLACK_BASE_URL=http://h/?token=" + secret, "PAIDONCE_PROVIDERS_OPENAI_BASE_URL=http//u:" + secret + "@h"},
		"a port is none": {"PAIDONCE_LEDGER_URL=postgres://u:" + secret + "@h:port/d?sslpassword=" + secret, "PAIDONCE_BROKER_URL=amqp://u:" + secret + "@h:port/"},
	} {
		w.env = append(append([]string{}, env...), broken...)
		for _, args := range [][]string{{"run"}, {"config", "show"}, {"config", "show", "--json"}, {"doctor"}, {"doctor", "--json"}, {"jobs", "list"}, {"submit", "--job", moderate.Name}, {"migrate", "status"}, {"dlq", "list"}} {
			if code, _, _ := w.brief(args...); code == 0 && args[0] != "config" && name != "logins are refused" {
				t.Errorf("worker %v succeeds where %s", args, name)
			}
		}
	}
	w.env = env
	for _, text := range []string{"ledger: {url: " + secret + "\n", "providers: {openai: {api_key: [" + secret + "]}}\n", secret + ": 1\n", "steps: {slack: {token: {a: " + secret + "}}}\n"} {
		file := filepath.Join(t.TempDir(), "worker.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(text, secret) {
			continue // a key is no secret, and is named
		}
		w.Run("", "config", "show", "--config", file)
	}
}

// brief is Run of a command that may wait for ever, for some seconds.
func (w *World) brief(args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	if args[0] != "run" {
		return w.Run(`{"tenant":"acme","content":"c","revision":1,"text":"x"}`, args...)
	}
	p := &Proc{w: w, name: "brief", cmd: command(w, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	w.begin(p)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second): // it tries again for as long as it runs
		p.Kill()
	}
	return p.cmd.ProcessState.ExitCode(), p.log.String(), ""
}

// withPassword is a URL with another password.
func withPassword(t *testing.T, raw, password string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("teller", password)
	return u.String()
}

// last is the value of a variable that counts.
func last(env []string, prefix string) (v string) {
	for _, e := range env {
		if rest, ok := strings.CutPrefix(e, prefix); ok {
			v = rest
		}
	}
	return v
}
