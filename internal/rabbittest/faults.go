package rabbittest

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SettleTime is how long a queue must exist before Kill9: a quorum queue that
// was declared less than about 3 s before is broken for ever (RabbitMQ 3.10).
const SettleTime = 5 * time.Second

// Kill9 ends the broker without warning. Call Restart before the test ends, and
// see SettleTime.
func (s *Server) Kill9(t testing.TB) {
	t.Helper()
	s.handles(t)
	s.node.kill()
}

// Restart starts the broker in the folders it was killed in.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.handles(t)
	if err := s.node.start(); err != nil {
		t.Fatalf("restart the broker: %v", err)
	}
	if err := s.ctl.connected(); err != nil {
		t.Fatalf("restart the broker: %v", err)
	}
}

// Freeze stops the broker's process where it stands, sockets open; Thaw lets it
// go on. It is thawed with the test at the latest.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.handles(t)
	t.Cleanup(func() { s.Thaw(t) })
	if err := s.node.signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze the broker: %v", err)
	}
}

// Thaw ends Freeze. A broker that is not frozen goes on as it was.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	if err := s.node.signal(syscall.SIGCONT); err != nil {
		t.Errorf("thaw the broker: %v", err)
	}
}

// CloseConnections closes every connection to the virtual host of amqpURL from
// the broker's side: clients see 320 CONNECTION_FORCED.
func (s *Server) CloseConnections(t testing.TB, amqpURL string) {
	t.Helper()
	s.Eval(t, `[rabbit_networking:close_connection(P, "closed by a test") || P <- rabbit_networking:connections(),
		(catch rabbit_networking:connection_info(P, [vhost])) =:= [{vhost, %s}]], ok`, bin(vhostOf(amqpURL)))
}

// Connections counts the connections to the virtual host of amqpURL.
func (s *Server) Connections(t testing.TB, amqpURL string) int {
	t.Helper()
	return s.number(t, `length([P || P <- rabbit_networking:connections(),
		(catch rabbit_networking:connection_info(P, [vhost])) =:= [{vhost, %s}]])`, bin(vhostOf(amqpURL)))
}

// CloseChannels closes, one by one, the channels on which something consumes from
// queue: their clients see 406, and their connections live on. It returns how
// many there were.
func (s *Server) CloseChannels(t testing.TB, amqpURL, queue string) int {
	t.Helper()
	return s.number(t, `length([rabbit_channel:do(P, {'basic.ack', 999999, false}) || P <- lists:usort(%s)])`, consumers(amqpURL, queue))
}

// CrashChannels kills the processes of the channels that consume from queue:
// clients see 541 INTERNAL_ERROR, and the whole connection goes.
func (s *Server) CrashChannels(t testing.TB, amqpURL, queue string) int {
	t.Helper()
	return s.number(t, `length([exit(P, kill) || P <- lists:usort(%s)])`, consumers(amqpURL, queue))
}

// Consumers counts the consumers of queue.
func (s *Server) Consumers(t testing.TB, amqpURL, queue string) int {
	t.Helper()
	return s.number(t, `length(%s)`, consumers(amqpURL, queue))
}

// consumers is an Erlang list of the channel process of each consumer of queue.
func consumers(amqpURL, queue string) string {
	return fmt.Sprintf(`[element(2, lists:keyfind(channel_pid, 1, C)) || C <- rabbit_amqqueue:consumers_all(%s),
		{resource, _, queue, Q} <- [element(2, lists:keyfind(queue_name, 1, C))], Q =:= %s]`, bin(vhostOf(amqpURL)), bin(queue))
}

// Depth counts the messages of a quorum queue exactly: those that could be handed
// out now, and those that are handed out. A queue that does not exist has none.
func (s *Server) Depth(t testing.TB, amqpURL, queue string) (ready, unacked int) {
	t.Helper()
	var v string
	for range 500 { // a queue that was made just now has no leader for a moment
		v = s.Eval(t, `case rabbit_amqqueue:lookup({resource, %s, queue, %s}) of {error, not_found} -> {0, 0}; {ok, Q} ->
			case ra:leader_query(amqqueue:get_pid(Q), fun(S) -> {rabbit_fifo:query_messages_ready(S), rabbit_fifo:query_messages_checked_out(S)} end) of
				{ok, {_, N}, _} -> N; E -> E end end`,
			bin(vhostOf(amqpURL)), bin(queue))
		if _, err := fmt.Sscanf(v, "{%d,%d}", &ready, &unacked); err == nil {
			return ready, unacked
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("depth of %s: %s", queue, v)
	return 0, 0
}

// AckTimeout sets the broker's ack timeout for channels opened from now on, until
// the test ends. It is looked at once a second.
func (s *Server) AckTimeout(t testing.TB, d time.Duration) {
	t.Helper()
	s.Eval(t, `application:set_env(rabbit, consumer_timeout, %d)`, d.Milliseconds())
	t.Cleanup(func() { s.Eval(t, `application:set_env(rabbit, consumer_timeout, 1800000)`) })
}

// MemoryAlarm raises or ends a memory alarm: publishing connections are blocked.
// It ends with the test at the latest.
func (s *Server) MemoryAlarm(t testing.TB, on bool) {
	t.Helper()
	if !on {
		s.Eval(t, `vm_memory_monitor:set_vm_memory_high_watermark({absolute, "1GB"})`)
		return
	}
	t.Cleanup(func() { s.MemoryAlarm(t, false) })
	s.Eval(t, `vm_memory_monitor:set_vm_memory_high_watermark({absolute, "1MB"})`)
	for range 200 {
		if strings.Contains(s.Eval(t, `rabbit_alarm:get_alarms()`), "memory") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the memory alarm did not start")
}

// Version is the broker's version, "3.10.8".
func (s *Server) Version(t testing.TB) string {
	t.Helper()
	return strings.Trim(s.Eval(t, `element(2, application:get_key(rabbit, vsn))`), `"`)
}

func (s *Server) number(t testing.TB, format string, args ...any) int {
	t.Helper()
	v := s.Eval(t, format, args...)
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("the broker answered %s, want a number", v)
	}
	return n
}

// vhostOf is the last part of a URL that VHost returned.
func vhostOf(amqpURL string) string {
	return amqpURL[strings.LastIndexByte(amqpURL, '/')+1:]
}

// CancelConsumers tells the clients that consume from queue that the broker ended
// their subscriptions, as RabbitMQ 4.3 does after an ack timeout. The queue and the
// channels stay.
func (s *Server) CancelConsumers(t testing.TB, amqpURL, queue string) {
	t.Helper()
	s.Eval(t, `[rabbit_channel:send_command(element(2, lists:keyfind(channel_pid, 1, C)),
			{'basic.cancel', element(2, lists:keyfind(consumer_tag, 1, C)), true})
		|| C <- rabbit_amqqueue:consumers_all(%s),
		{resource, _, queue, Q} <- [element(2, lists:keyfind(queue_name, 1, C))], Q =:= %s], ok`, bin(vhostOf(amqpURL)), bin(queue))
}

// User makes a user, or gives one another password, who may do everything in the
// virtual host of amqpURL.
func (s *Server) User(t testing.TB, amqpURL, name, password string) {
	t.Helper()
	s.Eval(t, `ok = rabbit_auth_backend_internal:put_user(#{name => %s, password => %s, tags => <<>>}, <<"test">>),
		ok = rabbit_auth_backend_internal:set_permissions(%s, %s, <<".*">>, <<".*">>, <<".*">>, <<"test">>)`,
		bin(name), bin(password), bin(name), bin(vhostOf(amqpURL)))
}
