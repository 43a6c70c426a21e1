// Package localstack runs the scripts of this folder, as an emulator would when it is
// ready, against one that is here. It holds tests only.
package localstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/internal/sqstest"
)

// TestQueues runs the script twice, as LocalStack does when it starts with its data
// still there, and looks at the queues on the server.
func TestQueues(t *testing.T) {
	srv := sqstest.Start(t)
	name := "orders-" + strings.ToLower(rand.Text()[:6])
	names := []string{name, name + "-dead", name + "-dead.fifo", name + ".fifo"}
	t.Cleanup(func() {
		for _, url := range urls(t, srv, name) {
			if _, err := srv.Client().DeleteQueue(context.WithoutCancel(t.Context()), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Logf("delete queue %s: %v", url, err)
			}
		}
	})
	runScripts(t, srv, name)
	first := look(t, srv, name, names)

	main := first[name].url
	body, visibility := "kept", map[string]string{"VisibilityTimeout": "7"} // somebody tried something
	if _, err := srv.Client().SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &main, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Client().SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &main, Attributes: visibility}); err != nil {
		t.Fatal(err)
	}
	runScripts(t, srv, name)
	second := look(t, srv, name, names)
	for _, n := range names {
		if first[n] != second[n] {
			t.Errorf("%s is %+v after the second run, was %+v", n, second[n], first[n])
		}
	}
	if d := srv.Depth(t, main); d.Visible != 1 {
		t.Errorf("the second run left %+v of one message", d)
	}

	for _, suffix := range []string{"", ".fifo"} {
		main, dead := first[name+suffix], first[name+"-dead"+suffix]
		wantMain := queue{url: main.url, arn: main.arn, fifo: suffix != "", visibility: "120", wait: "20", retention: "345600", deadARN: dead.arn, maxReceives: "1000"}
		wantDead := queue{url: dead.url, arn: dead.arn, fifo: suffix != "", visibility: "30", wait: "0", retention: "1209600"}
		if main != wantMain || dead != wantDead || main.arn == dead.arn {
			t.Errorf("the pair is\n%+v and\n%+v, want\n%+v and\n%+v", main, dead, wantMain, wantDead)
		}
	}
}

// TestAwslocalRefuses: the stand-in does not let pass what it does not do.
func TestAwslocalRefuses(t *testing.T) {
	for _, args := range []string{
		"s3 ls", "sqs purge-queue --queue-url u", "sqs create-queue --queue-name n --tags a=b --query QueueUrl --output text",
		"sqs create-queue --queue-name n", "sqs create-queue --queue-name n --query QueueUrl --output", "sqs create-queue --queue-name --query QueueUrl --output text",
		"sqs get-queue-attributes --queue-url u --attribute-names All --query Attributes.QueueArn --output text",
		"sqs create-queue --queue-name n --attributes FifoQueue=true --query QueueUrl --output text",
		"sqs set-queue-attributes --queue-url u --attributes VisibilityTimeout=1",
	} {
		if err := awslocal(t.Context(), strings.Fields(args), t.Output()); err == nil || strings.Contains(err.Error(), "operation error") {
			t.Errorf("awslocal %s: %v, want it refused", args, err)
		}
	}
}

// runScripts runs what LocalStack would run when it is ready, in its order.
func runScripts(t *testing.T, srv *sqstest.Server, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "awslocal")); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("init/ready.d/*.sh") // sorted
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found the scripts %v, %v", scripts, err)
	}
	for _, script := range scripts {
		cmd := exec.CommandContext(t.Context(), script)
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + bin, "PAIDONCE_QUEUE=" + name, "AWS_ENDPOINT_URL=" + srv.Endpoint(), "AWS_REGION=" + sqstest.Region}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
}

// queue is what a script can make of one.
type queue struct {
	url, arn                    string
	fifo                        bool
	visibility, wait, retention string // seconds
	deadARN, maxReceives        string
}

// look reads the queues, which must be those and no others.
func look(t *testing.T, srv *sqstest.Server, prefix string, names []string) map[string]queue {
	t.Helper()
	all := map[string]queue{}
	for _, url := range urls(t, srv, prefix) {
		out, err := srv.Client().GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err != nil {
			t.Fatalf("attributes of %s: %v", url, err)
		}
		a := out.Attributes
		q := queue{url: url, arn: a["QueueArn"], fifo: a["FifoQueue"] == "true", visibility: a["VisibilityTimeout"], wait: a["ReceiveMessageWaitTimeSeconds"], retention: a["MessageRetentionPeriod"]}
		if text, ok := a["RedrivePolicy"]; ok {
			var p struct {
				DeadLetterTargetArn string
				MaxReceiveCount     any // AWS takes a number and a text of one, emulators give back either
			}
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("RedrivePolicy of %s: %v\n%s", url, err, text)
			}
			n, err := json.Marshal(p.MaxReceiveCount)
			if err != nil {
				t.Fatal(err)
			}
			q.deadARN, q.maxReceives = p.DeadLetterTargetArn, strings.Trim(string(n), `"`)
		}
		all[url[strings.LastIndex(url, "/")+1:]] = q
	}
	var got []string
	for name := range all {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Fatalf("the queues are %v, want %v", got, names)
	}
	return all
}

func urls(t *testing.T, srv *sqstest.Server, prefix string) []string {
	t.Helper()
	out, err := srv.Client().ListQueues(context.WithoutCancel(t.Context()), &sqs.ListQueuesInput{QueueNamePrefix: aws.String(prefix)})
	if err != nil {
		t.Fatalf("list queues: %v", err)
	}
	return out.QueueUrls
}
