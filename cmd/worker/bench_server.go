package main

import (
	"context"
	"fmt"
	"os"

	"millrace/internal/bench/broker"
)

// benchServer is the command by which `worker bench` starts its NATS server as a process of its own.
const benchServer = "bench-server"

// benchServerProgram is this program as a server; none where the program's own path is not known.
func benchServerProgram() []string {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{path, benchServer}
}

// runBenchServer serves until standard input ends. An interrupt does not end it: the one who started it has streams to remove.
func runBenchServer(_ context.Context, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s takes the folder of the server's files, and is meant for worker bench", benchServer)}
	}
	return broker.ServeUntilEOF(args[0], os.Stdin, os.Stdout)
}
