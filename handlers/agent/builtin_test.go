package agent

import (
	"errors"
	"strings"
	"testing"
)

// use asks a built-in tool; an error that is for the model is its text.
func use(t *testing.T, tool, arguments, goal string) string {
	t.Helper()
	text, err := newToolbox(Builtin(), ToolTimeout).answer(t.Context(), Use{Tool: tool, Arguments: canonical(arguments), Task: Task{Goal: goal}})
	if told, ok := errors.AsType[*told](err); ok {
		return "told: " + told.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCalculate(t *testing.T) {
	for expression, want := range map[string]string{
		"1+2*3":                  "7",
		"(1 + 2) * 3":            "9",
		"2-3-4":                  "-5",
		"2-(3-4)":                "3",
		"100/8/2":                "6.25",
		"1/3":                    "0.333333333333",
		"-2*-(3 - 5)":            "-4",
		"0.1+0.2":                "0.3",
		"12345678901234567890*2": "24691357802469135780",
		"1/0":                    "told: the expression divides by zero",
		"2*(3":                   "told: the expression ends where a closing bracket should stand",
		"2)":                     `told: there is ")" where the end should stand`,
		"two":                    `told: there is "two" where a number should stand`,
		"":                       "told: the expression ends where a number should stand",
		"1.2.3":                  `told: there is "1.2.3" where a number should stand`,
		"1e9":                    `told: there is "e9" where the end should stand`,
	} {
		if got := use(t, "calculate", `{"expression":"`+expression+`"}`, ""); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
	if got := use(t, "calculate", `{"expression":"`+strings.Repeat("9*", 400)+`9"}`, ""); !strings.Contains(got, "at most 500") {
		t.Errorf("a long expression is %s", got)
	}
	if got := use(t, "calculate", `{"expression":"`+strings.Repeat("9*", 249)+`9"}`, ""); len(got) < 200 {
		t.Errorf("the largest product is %s", got)
	}
}

func TestSearchGoal(t *testing.T) {
	const goal = "Which plan?\nThe red plan costs 5\r\nThe Blue Plan costs 7\nnothing else"
	for words, want := range map[string]string{
		"plan costs": "2: The red plan costs 5\n3: The Blue Plan costs 7\n",
		"BLUE":       "3: The Blue Plan costs 7\n",
		"green":      "no line has all of these words",
		" ":          "told: there are no words to look for",
	} {
		if got := use(t, "search_goal", `{"words":"`+words+`"}`, goal); got != want {
			t.Errorf("%q finds %q, want %q", words, got, want)
		}
	}
	if got := use(t, "search_goal", `{"words":"x"}`, strings.Repeat("x\n", 25)); strings.Count(got, "\n") != 21 || !strings.HasSuffix(got, "(5 more)\n") {
		t.Errorf("many lines are shown as %q", got)
	}
}

func TestArgumentsOfTools(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"expresion":"1"}`: "told: the arguments of calculate do not fit its schema",
		`{"expression":1}`:  "told: the arguments of calculate do not fit its schema",
		`["1+1"]`:           "told: the arguments are no JSON object",
		`{"expression":`:    "told: the arguments are no JSON object",
	} {
		if got := use(t, "calculate", arguments, ""); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
	}
	if got := use(t, "calculat", "{}", ""); got != `told: there is no tool "calculat"` {
		t.Errorf("a tool that is not there says %s", got)
	}
}
