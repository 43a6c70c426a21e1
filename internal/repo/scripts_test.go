package repo

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScripts: what is meant to be run can be run. LocalStack skips a script
// without a run bit and says nothing.
func TestScripts(t *testing.T) {
	found := 0
	for _, path := range files(t) {
		hook := strings.HasPrefix(path, "localstack/init/")
		if !hook && !strings.HasSuffix(path, ".sh") && path != ".ci/run" {
			continue
		}
		found++
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o111 != 0o111 {
			t.Errorf("%s has mode %v: set the run bit (git update-index --chmod=+x)", path, info.Mode())
		}
		if !regexp.MustCompile(`^#!(/bin/sh|/usr/bin/env bash)\n`).MatchString(read(t, path)) {
			t.Errorf("%s does not begin with the line that names its shell", path)
		}
		if !regexp.MustCompile(`(?m)^set -eu`).MatchString(read(t, path)) && path != "tools/check.sh" {
			t.Errorf("%s goes on after an error: set -eu", path)
		}
	}
	if found < 3 {
		t.Errorf("found %d scripts; the check proves nothing", found)
	}
}

// fakeSQS stands in for awslocal: queues are files, and it refuses what SQS
// refuses.
const fakeSQS = `#!/bin/sh
set -eu
[ "$1" = sqs ] || exit 2
verb=$2; shift 2
while [ $# -gt 0 ]; do
	case $1 in
	--queue-name) name=$2 ;;
	--queue-url) name=${2##*/}; [ -e "$DIR/$name" ] || { echo NonExistentQueue >&2; exit 254; } ;;
	--attributes) attributes=$2 ;;
	esac
	shift
done
case $verb in
create-queue)
	[ -z "${attributes:-}" ] || { echo 'QueueNameExists, the second time' >&2; exit 254; }
	[ -e "$DIR/$name" ] || echo {} >"$DIR/$name"
	echo "http://sqs.test/000000000000/$name" ;;
get-queue-attributes) echo "arn:aws:sqs:us-east-1:000000000000:$name" ;;
set-queue-attributes) printf '%s' "$attributes" >"$DIR/$name" ;;
*) echo "unknown verb $verb" >&2; exit 2 ;;
esac
`

// TestQueueScript runs the script twice, as LocalStack may, and looks at the queues.
func TestQueueScript(t *testing.T) {
	bin, queues := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "awslocal"), []byte(fakeSQS), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "localstack/init/ready.d/10-queues.sh"))
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DIR="+queues, "PAIDONCE_QUEUE=orders")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	attributes := func(queue string) (a map[string]string) {
		b, err := os.ReadFile(filepath.Join(queues, queue))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatalf("attributes of %s: %v\n%s", queue, err, b)
		}
		return a
	}
	var redrive struct{ DeadLetterTargetArn, MaxReceiveCount string }
	if err := json.Unmarshal([]byte(attributes("orders")["RedrivePolicy"]), &redrive); err != nil {
		t.Fatalf("RedrivePolicy: %v", err)
	}
	if want := "arn:aws:sqs:us-east-1:000000000000:orders-dead"; redrive.DeadLetterTargetArn != want || redrive.MaxReceiveCount != "1000" {
		t.Errorf("RedrivePolicy is %+v, want %s after 1000 receives", redrive, want)
	}
	if got := attributes("orders-dead")["MessageRetentionPeriod"]; got != "1209600" {
		t.Errorf("dead letters are kept for %s seconds, want 14 days", got)
	}
}
