package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Builtin are the tools of an agent that is given no others. They cost nothing and change nothing:
// calculate, today and search_goal.
func Builtin() []Tool {
	return []Tool{
		{
			Name:        "calculate",
			Description: "The exact value of an arithmetic expression of decimal numbers with + - * / and brackets.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"],"additionalProperties":false}`),
			Func:        calculate,
		},
		{
			Name:        "today",
			Description: "The date on which this task asked for it first, and its weekday, in UTC.",
			Func: func(context.Context, Use) (string, error) {
				return time.Now().UTC().Format("2006-01-02, a Monday"), nil
			},
		},
		{
			Name:        "search_goal",
			Description: "The lines of the goal that have all the given words, with their numbers; for goals that quote long texts.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"words":{"type":"string"}},"required":["words"],"additionalProperties":false}`),
			Func:        searchGoal,
		},
	}
}

// foundMost is how many lines search_goal answers.
const foundMost = 20

func searchGoal(_ context.Context, u Use) (string, error) {
	var in struct{ Words string }
	if err := u.Read(&in); err != nil {
		return "", err
	}
	words := strings.Fields(strings.ToLower(in.Words))
	if len(words) == 0 {
		return "", Tell(errors.New("there are no words to look for"))
	}
	var out strings.Builder
	n, found := 0, 0
	for line := range strings.Lines(u.Task.Goal) {
		n++
		low, all := strings.ToLower(line), true
		for _, w := range words {
			all = all && strings.Contains(low, w)
		}
		if !all {
			continue
		}
		if found++; found <= foundMost {
			fmt.Fprintf(&out, "%d: %s\n", n, strings.TrimRight(line, "\r\n"))
		}
	}
	if found > foundMost {
		fmt.Fprintf(&out, "(%d more)\n", found-foundMost)
	}
	if found == 0 {
		return "no line has all of these words", nil
	}
	return out.String(), nil
}

// longest is the longest expression; what it is worth stays small enough to be written down, then.
const longest = 500

func calculate(_ context.Context, u Use) (string, error) {
	var in struct{ Expression string }
	if err := u.Read(&in); err != nil {
		return "", err
	}
	if len(in.Expression) > longest {
		return "", Tell(fmt.Errorf("the expression has %d bytes, and at most %d are read", len(in.Expression), longest))
	}
	e := &expression{rest: in.Expression}
	v, err := e.sum()
	if err == nil && e.peek() != 0 {
		err = e.fault("the end")
	}
	if err != nil {
		return "", Tell(err)
	}
	if v.IsInt() {
		return v.Num().String(), nil
	}
	return strings.TrimRight(v.FloatString(12), "0"), nil
}

// expression reads arithmetic from left to right.
type expression struct{ rest string }

// peek is the next byte that is no white space; 0: there is none.
func (e *expression) peek() byte {
	if e.rest = strings.TrimLeft(e.rest, " \t\r\n"); e.rest == "" {
		return 0
	}
	return e.rest[0]
}

func (e *expression) fault(want string) error {
	if e.peek() == 0 {
		return fmt.Errorf("the expression ends where %s should stand", want)
	}
	return fmt.Errorf("there is %.20q where %s should stand", e.rest, want)
}

// chain reads terms and the operators between them.
func (e *expression) chain(operators string, term func() (*big.Rat, error), apply func(op byte, a, b *big.Rat) error) (*big.Rat, error) {
	v, err := term()
	for err == nil && e.peek() != 0 && strings.IndexByte(operators, e.peek()) >= 0 {
		op := e.rest[0]
		e.rest = e.rest[1:]
		var right *big.Rat
		if right, err = term(); err == nil {
			err = apply(op, v, right)
		}
	}
	return v, err
}

func (e *expression) sum() (*big.Rat, error) {
	return e.chain("+-", e.product, func(op byte, a, b *big.Rat) error {
		if op == '-' {
			b.Neg(b)
		}
		a.Add(a, b)
		return nil
	})
}

func (e *expression) product() (*big.Rat, error) {
	return e.chain("*/", e.factor, func(op byte, a, b *big.Rat) error {
		if op == '/' {
			if b.Sign() == 0 {
				return errors.New("the expression divides by zero")
			}
			b.Inv(b)
		}
		a.Mul(a, b)
		return nil
	})
}

// factor reads a number, or a sum in brackets, behind any signs.
func (e *expression) factor() (*big.Rat, error) {
	switch c := e.peek(); {
	case c == '-' || c == '+':
		e.rest = e.rest[1:]
		v, err := e.factor()
		if err == nil && c == '-' {
			v.Neg(v)
		}
		return v, err
	case c == '(':
		e.rest = e.rest[1:]
		v, err := e.sum()
		if err == nil && e.peek() != ')' {
			return nil, e.fault("a closing bracket")
		}
		if err == nil {
			e.rest = e.rest[1:]
		}
		return v, err
	}
	return e.number()
}

func (e *expression) number() (*big.Rat, error) {
	digits := e.rest[:len(e.rest)-len(strings.TrimLeft(e.rest, "0123456789."))]
	v, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil, e.fault("a number")
	}
	e.rest = e.rest[len(digits):]
	return v, nil
}
