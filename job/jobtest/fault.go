package jobtest

import (
	"fmt"
	"time"
)

// Fault is something that happens to a run. A fault that does not come to pass, because the run has no such point, is an
// error of the test: make one with the functions of this package.
type Fault struct {
	kind faultKind
	at   Point
	n    int
	wait time.Duration
	may  bool // it need not come to pass
}

type faultKind int

const (
	crash faultKind = iota + 1
	pause
	restart
	loseLease
	dropAck
	lateAnswer
	loseAnswer
	redeliver
	concurrent
	submitAgain
	slowAnswer
)

func (f Fault) apply(s *setup) { s.faults = append(s.faults, f) }

// CrashAt kills the worker at the point, as SIGKILL would; a fresh one goes on.
func CrashAt(p Point) Fault { return Fault{kind: crash, at: p} }

// Pause freezes the worker at the point, as SIGSTOP would, or a machine that sleeps. A fresh one takes over when the lease is over and ends the
// job; then the zombie wakes. Fault.Resume lets it wake at another time.
func Pause(p Point) Fault { return Fault{kind: pause, at: p} }

// Resume lets a paused worker wake after d, whatever the others have done by then.
func (f Fault) Resume(d time.Duration) Fault { f.wait = d; return f }

// Restart stops the worker in order at the point, as SIGTERM would, and starts a fresh one beside it.
func Restart(p Point) Fault { return Fault{kind: restart, at: p} }

// LoseLease takes the lease from the worker at the point, and the message. A fresh one is given both; as soon as it has them the worker goes on, beside it, and does not
// know. Where the fresh one never asks, since the job is over, it goes on after two minutes.
func LoseLease(p Point) Fault { return Fault{kind: loseLease, at: p} }

// DropAck loses the first ack: the worker believes that it was heard, and the message comes again.
func DropAck() Fault { return Fault{kind: dropAck} }

// SlowAnswer lets the provider take half of the time for its first answer that the call waits.
func SlowAnswer() Fault { return Fault{kind: slowAnswer} }

// LateAnswer lets the provider take longer for its first answer than the call waits.
func LateAnswer() Fault { return Fault{kind: lateAnswer} }

// LoseAnswer cuts the connection after the provider has made its first answer, and before it is sent.
func LoseAnswer() Fault { return Fault{kind: loseAnswer} }

// Redeliver hands the message out n more times, to two workers: when the job was claimed, every two seconds while it runs, and after it where there is no time left.
func Redeliver(n int) Fault { return Fault{kind: redeliver, at: After(Claim), n: n} }

// Concurrent submits the message n times at once, to n workers.
func Concurrent(n int) Fault { return Fault{kind: concurrent, n: n} }

// SubmitAgain submits the message once more when the run is at the point.
func SubmitAgain(p Point) Fault { return Fault{kind: submitAgain, at: p} }

// String says in words what happens.
func (f Fault) String() string {
	switch f.kind {
	case crash:
		return "the worker dies " + f.at.String()
	case pause:
		return "the worker is frozen " + f.at.String() + ", and wakes as a zombie"
	case restart:
		return "the worker is stopped in order " + f.at.String()
	case loseLease:
		return "the worker loses its lease " + f.at.String()
	case dropAck:
		return "the first ack is lost"
	case lateAnswer:
		return "the first answer comes after the call's timeout"
	case loseAnswer:
		return "the first answer is lost on its way"
	case redeliver:
		return fmt.Sprintf("the message is delivered again, %d times", f.n)
	case concurrent:
		return fmt.Sprintf("%d workers receive it at once", f.n)
	case slowAnswer:
		return "the first answer is slow"
	case submitAgain:
		return "it is submitted again " + f.at.String()
	}
	return "nothing"
}

// expr is the fault in Go.
func (f Fault) expr() string {
	at := f.at.expr
	switch f.kind {
	case crash:
		return "jobtest.CrashAt(" + at() + ")"
	case pause:
		return "jobtest.Pause(" + at() + ")"
	case restart:
		return "jobtest.Restart(" + at() + ")"
	case loseLease:
		return "jobtest.LoseLease(" + at() + ")"
	case dropAck:
		return "jobtest.DropAck()"
	case slowAnswer:
		return "jobtest.SlowAnswer()"
	case lateAnswer:
		return "jobtest.LateAnswer()"
	case loseAnswer:
		return "jobtest.LoseAnswer()"
	case redeliver:
		return fmt.Sprintf("jobtest.Redeliver(%d)", f.n)
	case concurrent:
		return fmt.Sprintf("jobtest.Concurrent(%d)", f.n)
	case submitAgain:
		return "jobtest.SubmitAgain(" + at() + ")"
	}
	return ""
}
