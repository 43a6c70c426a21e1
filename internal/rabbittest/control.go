package rabbittest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// control is an Erlang node that evaluates expressions on the broker. It stays
// connected, so one costs a millisecond; rabbitmqctl takes half a second.
type control struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// loop reads one expression a line and answers with one line.
const loop = `
Node = list_to_atom(hd(init:get_plain_arguments())),
Loop = fun(Loop) ->
  case io:get_line("") of
    Line when is_list(Line) ->
      Answer = try
        {ok, Tokens, _} = erl_scan:string(Line),
        {ok, Exprs} = erl_parse:parse_exprs(Tokens),
        case rpc:call(Node, erl_eval, exprs, [Exprs, []], 60000) of
          {value, Value, _} -> {value, Value};
          Other -> {error, Other}
        end
      catch Class:Reason -> {error, {Class, Reason}} end,
      io:format("~0p~n", [Answer]),
      Loop(Loop);
    _ -> init:stop()
  end
end,
io:setopts([{encoding, unicode}]),
io:format("ready~n"),
Loop(Loop).`

func newControl(n *node) (*control, error) {
	erl, err := findProgram("erl", "/usr/lib/erlang/bin/erl")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(erl, "-noshell", "-start_epmd", "false", "-hidden",
		"-sname", n.name+"ctl@localhost", "-kernel", "inet_dist_use_interface", "{127,0,0,1}",
		"-eval", loop, "-extra", n.name+"@localhost")
	cmd.Env, cmd.Dir = n.env(), n.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.run(cmd); err != nil {
		return nil, fmt.Errorf("start the control node: %w", err)
	}
	c := &control{in: in, out: bufio.NewReader(out)}
	if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("control node said %q, %v", line, err)
	}
	return c, nil
}

// eval returns the printed value of an expression that ran on the broker.
func (c *control) eval(expr string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expr = strings.Join(strings.Fields(expr), " ")
	if _, err := fmt.Fprintf(c.in, "%s.\n", expr); err != nil {
		return "", err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	value, ok := strings.CutPrefix(strings.TrimSpace(line), "{value,")
	if !ok {
		return "", fmt.Errorf("%s: %s", expr, strings.TrimSpace(line))
	}
	return strings.TrimSuffix(value, "}"), nil
}

// Eval runs an Erlang expression (without the full stop) in the broker and
// returns its value as Erlang prints it. An expression that fails fails the test.
func (s *Server) Eval(t testing.TB, format string, args ...any) string {
	t.Helper()
	s.handles(t)
	v, err := s.ctl.eval(fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatalf("eval on the broker: %v", err)
	}
	return v
}

// bin writes s as an Erlang binary.
func bin(s string) string {
	return `<<"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"/utf8>>`
}

// connected waits until the control node reaches a broker that was restarted.
func (c *control) connected() error {
	var err error
	for range 200 {
		if _, err = c.eval("ok"); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("control node does not reach the broker: %w", err)
}
