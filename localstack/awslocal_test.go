package localstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/internal/sqstest"
)

// TestMain makes the test program awslocal when it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "awslocal" {
		os.Exit(m.Run())
	}
	if err := awslocal(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "awslocal:", err)
		os.Exit(254) // as the AWS command line does when the service refuses
	}
}

// awslocal makes the calls of the AWS command line that the scripts make, through the
// Go SDK. It refuses everything else, so that a script cannot use what was never run.
func awslocal(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 2 || args[0] != "sqs" {
		return fmt.Errorf("%q is not a call of sqs", args)
	}
	o, err := options(args[2:])
	if err != nil {
		return err
	}
	c := sqstest.NewClient(aws.Config{
		Region: os.Getenv("AWS_REGION"), BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL")),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	switch verb := args[1]; verb {
	case "create-queue":
		if o["--query"] != "QueueUrl" || o["--output"] != "text" {
			return fmt.Errorf("%s with --query %q --output %q", verb, o["--query"], o["--output"])
		}
		return createQueue(ctx, c, o, out)
	case "get-queue-attributes":
		if o["--query"] != "Attributes."+o["--attribute-names"] || o["--output"] != "text" {
			return fmt.Errorf("%s with --query %q --output %q", verb, o["--query"], o["--output"])
		}
		return getQueueAttribute(ctx, c, o, out)
	case "set-queue-attributes":
		return setQueueAttributes(ctx, c, o)
	default:
		return fmt.Errorf("there is no %s here", verb)
	}
}

// options reads --name value pairs.
func options(args []string) (map[string]string, error) {
	known := "--queue-name --queue-url --attributes --attribute-names --query --output"
	o := map[string]string{}
	for len(args) > 0 {
		if len(args) < 2 || !strings.Contains(" "+known+" ", " "+args[0]+" ") || strings.HasPrefix(args[1], "--") {
			return nil, fmt.Errorf("option %q is unknown or has no value", args[0])
		}
		o[args[0]], args = args[1], args[2:]
	}
	return o, nil
}

func createQueue(ctx context.Context, c *sqs.Client, o map[string]string, out io.Writer) error {
	var attributes map[string]string
	if text, ok := o["--attributes"]; ok {
		if err := json.Unmarshal([]byte(text), &attributes); err != nil {
			return fmt.Errorf("--attributes %s: %w", text, err)
		}
	}
	name := o["--queue-name"]
	q, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, *q.QueueUrl)
	return err
}

func getQueueAttribute(ctx context.Context, c *sqs.Client, o map[string]string, out io.Writer) error {
	url, name := o["--queue-url"], o["--attribute-names"]
	a, err := c.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)}})
	if err != nil {
		return err
	}
	value, ok := a.Attributes[name]
	if !ok {
		return errors.New(url + " has no attribute " + name)
	}
	_, err = fmt.Fprintln(out, value)
	return err
}

func setQueueAttributes(ctx context.Context, c *sqs.Client, o map[string]string) error {
	var attributes map[string]string
	if err := json.Unmarshal([]byte(o["--attributes"]), &attributes); err != nil {
		return fmt.Errorf("--attributes %s: %w", o["--attributes"], err)
	}
	url := o["--queue-url"]
	_, err := c.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
	return err
}
