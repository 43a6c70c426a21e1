package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
)

func nothing() {}

// strike begins a fault and returns what ends it.
func (s *tempest) strike(k strike) (end func()) {
	s.t.Helper()
	var worker int
	if n, _ := fmt.Sscanf(k.on, "worker %d", &worker); n == 1 {
		return s.strikeWorker(worker, k)
	}
	switch k.on {
	case "postgres":
		return s.strikePostgres(k.kind)
	case "pgbouncer":
		s.bouncer.Stop(s.t)
		return func() { s.bouncer.Restart(s.t) }
	case "rabbitmq":
		return s.strikeRabbit(k.kind)
	case "sqs":
		return strikeLink(s.http, k.kind)
	case "provider":
		return s.strikeProvider(k.kind)
	}
	s.t.Fatalf("nobody strikes %s", k)
	return nil
}

func (s *tempest) strikeWorker(i int, k strike) func() {
	p := s.workers[i]
	if k.kind == "SIGKILL" {
		s.down[i] = true
		p.Kill()
		return func() { s.launch(i) }
	}
	// What wakes it is not late, whatever the test waits for meanwhile: a longer sleep than the settle window is another fault.
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // fails where it has ended by itself
	woken := make(chan struct{})
	time.AfterFunc(k.lasts, func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		close(woken)
	})
	return func() { <-woken }
}

// strikeLink breaks a proxy's connections.
func strikeLink(p *faultproxy.Proxy, kind string) func() {
	switch kind {
	case "connections cut":
		p.Cut()
	case "connections reset":
		p.Reset()
	case "blackhole":
		p.Stall()
		return p.Resume
	case "refused":
		p.Refuse(true)
		p.Reset()
		return func() { p.Refuse(false) }
	default:
		return nil
	}
	return nothing
}

func (s *tempest) strikePostgres(kind string) func() {
	switch kind {
	case "crash":
		s.primary.StopImmediate(s.t)
		return func() { s.primary.Restart(s.t) }
	case "failover":
		s.primary.StopImmediate(s.t)
		return s.failOver
	case "slow commits": // the standby takes nothing, and no commit is answered
		thaw := s.standby.FreezeReceiver(s.t)
		return func() {
			if err := thaw(); err != nil {
				s.t.Errorf("thaw the standby: %v", err)
			}
		}
	}
	if end := s.strikeDisk(s.primary, kind); end != nil {
		return end
	}
	return s.known(strikeLink(s.pg, kind), kind)
}

// strikeDisk makes the disk of the database slow or full.
func (s *tempest) strikeDisk(p *pgtest.Server, kind string) func() {
	synced, refused := p.Synced(s.t), p.Refused(s.t)
	switch kind {
	case "slow fsync": // some gates are passed in time, and some not
		p.SetDisk(s.t, pgtest.Disk{Sync: 700 * time.Millisecond})
	case "full disk": // statements that want room end with an error
		p.SetDisk(s.t, pgtest.Disk{Full: true})
	case "full disk of its log": // the server dies, and may come back by itself or not before there is room
		p.FillLog(s.t)
		return func() { p.Recover(s.t) }
	default:
		return nil
	}
	return func() {
		s.synced, s.refused = s.synced+p.Synced(s.t)-synced, s.refused+p.Refused(s.t)-refused
		p.SetDisk(s.t, pgtest.Disk{})
	}
}

// failOver makes the standby the database, and gives it a standby of its own.
func (s *tempest) failOver() {
	s.standby.Promote(s.t)
	s.primary = s.standby
	for _, p := range []*faultproxy.Proxy{s.calm, s.pg} {
		p.Retarget(s.primary.Addr())
		p.Reset()
	}
	s.standby = s.primary.Standby(lasting{s.t, &s.last})
}

// lasting is a test whose clean-ups wait for those of its World: a server that a failover brings outlives the look at its rows.
type lasting struct {
	*testing.T
	last *[]func()
}

// Cleanup keeps f.
func (l lasting) Cleanup(f func()) { *l.last = append(*l.last, f) }

func (s *tempest) strikeRabbit(kind string) func() {
	switch kind {
	case "kill -9":
		s.rabbit.Kill9(s.t)
		return func() { s.rabbit.Restart(s.t) }
	case "memory alarm":
		s.rabbit.MemoryAlarm(s.t, true)
		return func() { s.rabbit.MemoryAlarm(s.t, false) }
	case "frozen":
		s.rabbit.Freeze(s.t)
		return func() { s.rabbit.Thaw(s.t) }
	case "closed by the broker":
		s.rabbit.CloseConnections(s.t, s.vhost)
		return nothing
	}
	return s.known(strikeLink(s.amqp, kind), kind)
}

// strikeProvider is for the next requests of whatever key.
func (s *tempest) strikeProvider(kind string) func() {
	f, ok := map[string]modelserver.Fault{
		"unread requests": {Kind: modelserver.ResetUnread, Times: 3},
		"lost answers":    {Kind: modelserver.Reset, Times: 3},
		"overloaded":      {Kind: modelserver.Overloaded, Times: 8},
	}[kind]
	if !ok {
		return s.known(nil, kind)
	}
	s.Models.ScriptAny(f)
	return nothing
}

func (s *tempest) known(end func(), kind string) func() {
	s.t.Helper()
	if end == nil {
		s.t.Fatalf("there is no fault %q", kind)
	}
	return end
}

// stormLoad is n jobs in batches of a few: three kinds of jobs, two tenants, and half of the batches more than once, over the same
// broker or over the other one too.
func stormLoad(seed uint64, n int) (all []batch) {
	const few = 4
	r := rand.New(rand.NewPCG(seed, 0x10ad))
	ways := [][]string{{"rabbitmq"}, {"sqs"}, {"rabbitmq", "rabbitmq"}, {"rabbitmq", "sqs"}, {"rabbitmq"}, {"sqs", "rabbitmq", "sqs"}}
	for i := 0; i < n; i += few {
		b := batch{over: ways[r.IntN(len(ways))]}
		make := []func(tenant, id string) Doc{toldTicket, stormInvoice, content}[i/few%3]
		for k := range few {
			b.docs = append(b.docs, make([]string{"acme", "globex"}[r.IntN(2)], fmt.Sprint(i+k)))
		}
		all = append(all, b)
	}
	return all
}

// toldTicket is a ticket of which a mail and a post tell.
func toldTicket(tenant, id string) Doc {
	key := summarize.Ticket{Tenant: tenant, Ticket: id, Revision: 1}.JobKey().String()
	return Doc{summarize.Name, fmt.Sprintf(`{"tenant":%q,"ticket":%q,"revision":1,"thread":"[key:%s] It was charged twice.","notify":{"email":"%s@acme.example","slack":"#support"}}`,
		tenant, id, key, tenant+"-"+id), key}
}

func stormInvoice(tenant, id string) Doc {
	key := invoice.Document{Tenant: tenant, Document: id, Revision: 1}.JobKey().String()
	return Doc{invoice.Name, fmt.Sprintf(`{"tenant":%q,"document":%q,"revision":1,"text":"[key:%s] Invoice R-17"}`, tenant, id, key), key}
}

func content(tenant, id string) Doc {
	key := moderate.Content{Tenant: tenant, Content: id, Revision: 1}.JobKey().String()
	return Doc{moderate.Name, fmt.Sprintf(`{"tenant":%q,"content":%q,"revision":1,"text":"[key:%s] Nice."}`, tenant, id, key), key}
}

// stepKeys are those of a ticket's mail and post.
func stepKeys(d Doc) (mail, post string) {
	tenant, rest, _ := strings.Cut(d.Key, ":")
	id := strings.Split(rest, ":")[1]
	return fmt.Sprintf("%s:email:%s:v1", tenant, id), fmt.Sprintf("%s:slack:%s:v1", tenant, id)
}
