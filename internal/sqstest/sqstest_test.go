package sqstest

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func send(t *testing.T, s *Server, in sqs.SendMessageInput) {
	t.Helper()
	if _, err := s.Client().SendMessage(t.Context(), &in); err != nil {
		t.Fatal(err)
	}
}

func bodies(messages []types.Message) (all []string) {
	for _, m := range messages {
		all = append(all, *m.Body)
	}
	return all
}

func TestQueue(t *testing.T) {
	s := Start(t)
	q := s.Queue(t, Spec{Dead: true, MaxReceives: 3, Visibility: 45 * time.Second, Attributes: map[string]string{"DelaySeconds": "1"}})
	a := s.attributes(t, q.URL, types.QueueAttributeNameAll)
	if a["VisibilityTimeout"] != "45" || a["DelaySeconds"] != "1" || a["FifoQueue"] == "true" {
		t.Errorf("attributes are %v", a)
	}
	if p := a["RedrivePolicy"]; !strings.Contains(p, q.Dead.ARN) || !strings.Contains(p, "3") {
		t.Errorf("redrive policy is %s, want 3 receives and %s", p, q.Dead.ARN)
	}
	if other := s.Queue(t, Spec{}); other.URL == q.URL || other.Dead != nil {
		t.Errorf("a second queue is %+v", other)
	}
	send(t, s, sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: new("late")})
	send(t, s, sqs.SendMessageInput{QueueUrl: &q.Dead.URL, MessageBody: new("one")})
	if got := s.Depth(t, q.URL); got != (Depth{Delayed: 1}) {
		t.Errorf("depth of the queue is %+v, want one delayed", got)
	}
	if got := s.Depth(t, q.Dead.URL); got != (Depth{Visible: 1}) {
		t.Errorf("depth of the dead-letter queue is %+v, want one visible", got)
	}
}

// TestList: what is listed is still there, in order, for the next receive.
func TestList(t *testing.T) {
	s := Start(t)
	q := s.Queue(t, Spec{FIFO: true, Dead: true})
	for _, body := range []string{"a", "b", "c"} {
		send(t, s, sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: &body, MessageGroupId: new("g"), MessageDeduplicationId: &body})
	}
	for range 2 {
		if got := strings.Join(bodies(s.List(t, q.URL)), ""); got != "abc" {
			t.Errorf("listed %q, want abc", got)
		}
	}
	if got := s.Depth(t, q.URL); got != (Depth{Visible: 3}) {
		t.Errorf("depth after a list is %+v, want three visible", got)
	}
}

// TestPollOfAHeldGroup: a poll sees that a group became free while it waited.
func TestPollOfAHeldGroup(t *testing.T) {
	s := Start(t)
	q := s.Queue(t, Spec{FIFO: true})
	for _, body := range []string{"first", "second"} {
		send(t, s, sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: &body, MessageGroupId: new("g"), MessageDeduplicationId: &body})
	}
	receive := func(wait int32) []types.Message {
		out, err := s.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q.URL, WaitTimeSeconds: wait, VisibilityTimeout: 60})
		if err != nil {
			t.Error(err)
			return nil
		}
		return out.Messages
	}
	first := receive(0)
	if !slices.Equal(bodies(first), []string{"first"}) {
		t.Fatalf("received %q", bodies(first))
	}
	polled := make(chan []types.Message)
	go func() { polled <- receive(20) }()
	time.Sleep(time.Second) // the poll has begun, or it begins with a free group
	if _, err := s.Client().DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &q.URL, ReceiptHandle: first[0].ReceiptHandle}); err != nil {
		t.Error(err)
	}
	if got := bodies(<-polled); !slices.Equal(got, []string{"second"}) {
		t.Errorf("the poll ended with %q, want the group's next message", got)
	}
}

// TestReset: an emulator of somebody else keeps its queues.
func TestReset(t *testing.T) {
	s := Start(t)
	q := s.Queue(t, Spec{})
	s.Reset(t)
	out, err := s.Client().ListQueues(t.Context(), &sqs.ListQueuesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if left := slices.Contains(out.QueueUrls, q.URL); left != (s.moto == nil) || s.moto != nil && len(out.QueueUrls) > 0 {
		t.Errorf("after a reset: %v", out.QueueUrls)
	}
}

// TestStartSaysWhatItWrote: a server that cannot start is no silent wait.
func TestStartSaysWhatItWrote(t *testing.T) {
	if _, err := launch("/nowhere/moto_server"); err == nil || !strings.Contains(err.Error(), "/nowhere/moto_server") {
		t.Errorf("launch of a program that is not there: %v", err)
	}
	t.Setenv("PAIDONCE_MOTO_SERVER", "/nowhere/moto_server")
	if p, err := findMoto(); err == nil {
		t.Errorf("found %s, want the error of the named program", p)
	}
}

// TestWatch: the server goes when the standard input ends, and its own end is seen.
func TestWatch(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", watch, "watch", "sh", "-c", `echo $$; exec "$0" 600`, sleep)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out tail
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for out.String() == "" {
		time.Sleep(time.Millisecond)
	}
	stdin.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("the server ended well, want by a signal")
	}
	var pid int
	for _, r := range strings.TrimSpace(out.String()) {
		pid = pid*10 + int(r-'0')
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
	own := exec.Command("sh", "-c", watch, "watch", "sh", "-c", "exit 7")
	if _, err := own.StdinPipe(); err != nil { // stays open
		t.Fatal(err)
	}
	if own.Run(); own.ProcessState.ExitCode() != 7 {
		t.Errorf("a server that ended with 7 was seen as %v", own.ProcessState)
	}
}
