package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// watched runs a server until standard input ends: with us, whatever becomes of us.
const watched = `"$@" >log 2>&1 </dev/null & p=$!; read -r _; kill $p; wait $p`

// startRedis starts a Redis that keeps what it is told as those of users do, in a file that it
// syncs every second. It returns its address and the process whose child it is.
func startRedis(ctx context.Context, r *room) (addr string, pid int, err error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return "", 0, fmt.Errorf("asynq needs redis-server (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis); -sys leaves it out: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return "", 0, err
	}
	r.Cleanup(func() { os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, err
	}
	free.Close()
	addr = free.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	cmd := exec.Command("sh", "-c", watched, "watched", bin, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec")
	cmd.Dir = dir
	input, err := cmd.StdinPipe()
	if err != nil {
		return "", 0, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	r.Cleanup(func() {
		input.Close()
		cmd.Wait() // of a server that was told to end
	})
	if err := onRedis(ctx, addr, func(c *redis.Client) error { return c.Ping(ctx).Err() }); err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "log"))
		return "", 0, fmt.Errorf("start Redis: %w\n%s", err, said)
	}
	return addr, cmd.Process.Pid, nil
}

// onRedis connects, and waits a while for a server that is just starting.
func onRedis(ctx context.Context, addr string, do func(*redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 100, MinRetryBackoff: 50 * time.Millisecond, MaxRetryBackoff: 50 * time.Millisecond})
	defer c.Close()
	return do(c)
}
