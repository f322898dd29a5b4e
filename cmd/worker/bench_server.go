package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"millrace/internal/bench/broker"
)

// benchServer is the hidden command with which `worker bench` starts its NATS server in a separate process.
const benchServer = "bench-server"

// benchServerCommand returns the hidden command.
func benchServerCommand() *cobra.Command {
	return &cobra.Command{Use: benchServer + " FOLDER [INDEX ADDRESS...]", Hidden: true, Args: cobra.ArbitraryArgs, RunE: func(_ *cobra.Command, args []string) error { return runBenchServer(args) }}
}

// benchServerProgram returns the command line of the server: this program and benchServer. It returns nil if the path of this
// program is unknown.
func benchServerProgram() []string {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{path, benchServer}
}

// runBenchServer serves until standard input ends. An interrupt does not end it, because the bench that started it still has to
// remove its streams.
func runBenchServer(args []string) error {
	o, err := broker.ServerOptions(args)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w; only worker bench runs it", benchServer, err)}
	}
	return broker.ServeUntilEOF(o, os.Stdin, os.Stdout)
}
