package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/ingest/embedded"
)

// someServer is the check of commands that need a NATS server. Without MILLRACE_NATS_URL, the build must have the embedded server.
var someServer = config.Check{Variable: "MILLRACE_NATS_URL", Wrong: func(c *config.Config) error {
	if c.Embedded() && !embedded.Included {
		return embedded.ErrLeftOut
	}
	return nil
}}

func configCommand() *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "list every variable with its current value, default and meaning",
		Long: "Lists every variable with its current value, its default and its meaning. Secrets are masked. A terminal gets wrapped lines, and a pipe " +
			"or a file gets a table with a line for each variable.",
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error { return runConfig() },
	}
}

func runConfig() error {
	cfg, err := config.Load(findOperators, someServer)
	var bad *config.Error
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if console.IsTerminal(os.Stdout) {
		fmt.Print(wrapped(cfg.Variables(), width(os.Stdout)))
		return err
	}
	if perr := cfg.Print(os.Stdout); perr != nil {
		return perr
	}
	return err
}

// wrapped returns a list of variables for people. It wraps the meanings at width columns.
func wrapped(variables []config.Variable, width int) string {
	var b strings.Builder
	for _, v := range variables {
		from := "default"
		if v.Set {
			from = "set; default: " + cmp.Or(v.Default, "empty")
		}
		fmt.Fprintf(&b, "%s=%s  (%s)\n%s\n", v.Name, printable(v.Value), from, console.Wrap(v.Meaning, width, 4))
	}
	return b.String()
}

// printable replaces unprintable characters, because a terminal could interpret them as commands.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}
