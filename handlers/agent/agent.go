// Package agent is the job agent.task: a model works towards a goal, turn by turn, with tools that it
// may call. It is a model to copy for jobs of many calls.
//
// Every turn and every use of a tool is a call of the job, memoised by its input: the conversation so
// far, or the tool and its arguments. So a run that follows a crash walks through the same
// conversation again, is given what was answered, and makes only what was not: at most the call that was
// interrupted, and not even that one while its outcome is unknown and the policy is to hold. What a
// turn's input is made of must therefore not depend on clocks, ids or the order in which goroutines
// end; nothing here does.
package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// Name is the job's name.
const Name = "agent.task"

// Prompt is the version of the instructions. It is kept with every attempt and is in no key and no
// input: a task that is under way when it changes keeps the turns that are paid for.
const Prompt = "p1"

const instructions = `You work on a task by yourself: nobody answers questions. Use the tools you are given where they
know more than you do, several at once where one does not need the other. A tool that is asked the same
again answers the same. When the goal is reached, or cannot be, say so in your answer, without asking for tools.`

// DefaultMaxTurns is how many turns a task has unless Options say otherwise.
const DefaultMaxTurns = 16

// Task is the message.
type Task struct {
	Tenant string `json:"tenant"`
	Task   string `json:"task"` // its id: another goal needs another one
	Goal   string `json:"goal"`
}

// Answer is the result.
type Answer struct {
	Answer string `json:"answer"`
}

// JobKey names the job, such as acme:agent.task:1077.
func (t Task) JobKey() job.Key { return job.K(t.Tenant, Name, t.Task) }

// Routes are tried unless Settings name others. A task may change routes from turn to turn.
var Routes = []provider.Route{
	{Name: "primary", Provider: provider.OpenAI, Model: "gpt-5-mini", Timeout: 90 * time.Second},
}

// Options are what an agent has beside the settings of every handler.
type Options struct {
	MaxTurns int    // of the model in one task, over all its runs; 0: DefaultMaxTurns
	Tools    []Tool // nil: Builtin
}

// Turn is the input of one turn: what it is memoised by.
type Turn struct {
	Goal  string `json:"goal"`
	Steps []Step `json:"steps"` // so far; none: the first turn
}

// Step is an answered turn that asked for tools, and what they said.
type Step struct {
	Text    string   `json:"text"`
	Uses    []Use    `json:"uses"`
	Results []string `json:"results"` // one for each use, in their order
}

// Reply is what the model makes of a turn: an answer, or tools to use first. A person who found the lost answer of a turn
// writes it down so, for `worker jobs resolve KEY --result`: {"text": "…"}, or
// {"tools": [{"name": "calculate", "arguments": "{\"expression\": \"6*7\"}"}]}.
type Reply struct {
	Text  string              `json:"text"`
	Tools []provider.ToolCall `json:"tools"`
}

// New makes the job. Zero settings and options are a usable configuration. It panics at tools that
// can never work: these are programmer's errors, found at start.
func New(s provider.Settings, o Options) job.Def[Task, Answer] {
	s = s.WithDefaults(Routes)
	if o.Tools == nil {
		o.Tools = Builtin()
	}
	longest := time.Duration(0)
	for _, r := range s.Routes {
		longest = max(longest, r.Timeout)
	}
	box := newToolbox(o.Tools, min(ToolTimeout, longest))
	turn := newTurn(s, box)
	uses := append(job.Uses(turn), box.calls()...)
	most := cmp.Or(o.MaxTurns, DefaultMaxTurns)
	return job.Def[Task, Answer]{
		Name: Name, Uses: uses, Limits: s.Limits, MaxRun: s.MaxRun, MaxRuns: s.MaxRuns,
		Handle: func(ctx context.Context, j *job.Run, t Task) (Answer, error) {
			if t.Goal == "" {
				return Answer{}, job.Failf("PO358 the task has no goal")
			}
			next := Turn{Goal: t.Goal}
			for n := 1; ; n++ {
				r, err := turn.Run(ctx, j, next)
				if err != nil || len(r.Tools) == 0 {
					return Answer{r.Text}, err
				}
				if n >= most {
					return Answer{}, job.Failf("PO359 the agent has made %d turns and still asks for tools; max_turns allows no more", n)
				}
				uses := box.uses(t, r.Tools)
				results, err := box.results(ctx, j, uses)
				if err != nil {
					return Answer{}, err
				}
				next.Steps = append(next.Steps, Step{r.Text, uses, results})
			}
		},
	}
}
