// Command serve is the stand-in model server as a program of its own, for workers that
// run in containers (tools/e2e-compose.yml). It serves until it is told to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
)

func main() {
	var o modelserver.Options
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:8081", "address to listen on")
	flag.DurationVar(&o.Latency, "latency", 200*time.Millisecond, "of every generation")
	flag.Parse()
	if err := serve(o); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func serve(o modelserver.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ms, err := modelserver.Start(o)
	if err != nil {
		return err
	}
	fmt.Println("model server at", ms.URL())
	<-ctx.Done()
	return ms.Close()
}
