// Command worker runs paid AI jobs from a queue so that each is paid once, and
// shows what became of them. `worker --help` lists what it can do.
package main

import (
	"context"
	"os"

	"github.com/paidonce/paidonce/cmd/worker/app"
)

func main() {
	os.Exit(app.Run(context.Background(), app.Process{
		Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
