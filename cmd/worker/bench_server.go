package main

import (
	"os"

	"github.com/spf13/cobra"

	"millrace/internal/bench/broker"
)

// benchServer is the hidden command with which `worker bench` starts its NATS server in a separate process.
const benchServer = "bench-server"

// benchServerCommand returns the hidden command. The server runs until standard input ends. An interrupt does not end
// it, because the bench that started it must still remove its streams.
func benchServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: benchServer + " FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return broker.ServeUntilEOF(args[0], os.Stdin, os.Stdout) },
	}
}

// benchServerProgram returns the command line of the server: this program and benchServer.
func benchServerProgram() ([]string, error) {
	path, err := os.Executable()
	return []string{path, benchServer}, err
}
