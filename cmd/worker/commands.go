package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/ingest/embedded"
)

// The help lists commands in the order of their addition. This setting is global and tests create commands in parallel,
// so init sets it once.
func init() { cobra.EnableCommandSorting = false }

// newRoot returns `worker` with all commands, in the order of its help. *begun becomes true when a command runs. An
// earlier error is an error of the command line.
func newRoot() (root *cobra.Command, begun *bool) {
	begun = new(bool)
	root = rootCommand()
	root.PersistentPreRun = func(*cobra.Command, []string) { *begun = true }
	root.SilenceErrors, root.SilenceUsage = true, true // main prints errors
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(printHelp)
	root.AddCommand(runCommand(), demoCommand(), benchCommand(), planCommand(), checkCommand(), sendCommand(), resultsCommand(), auditCommand(), retryCommand(), operatorCommand(),
		configCommand(), versionCommand(), manCommand(), benchServerCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		needsCommand(c)
		c.Short = "write the script with which a shell completes commands and flags"
	}
	return root, begun
}

// rootCommand returns `worker` itself, which is `worker run` with one more flag.
func rootCommand() *cobra.Command {
	c := runCommand()
	run, version := c.RunE, false
	c.Use, c.Short = "worker", "feed a GPU from NATS"
	c.Long = "Millrace feeds a GPU from NATS: it pulls payloads from a JetStream stream, runs them through overlapping GPU pipelines, and publishes " +
		"the results. Without a command, worker does what worker run does."
	c.Flags().BoolVar(&version, "version", false, "print the versions, as worker version does")
	c.Args = commandsOnly
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if version {
			return printVersion()
		}
		return run(cmd, args)
	}
	server := "If MILLRACE_NATS_URL is not set, the worker starts an embedded NATS server."
	if !embedded.Included {
		server = "MILLRACE_NATS_URL must be set: this build has no embedded NATS server."
	}
	c.Annotations = map[string]string{notes: "worker COMMAND -h describes a command. Environment variables that begin with MILLRACE_ set everything else: " +
		"see worker config.\n\n" + server + "\n\nExit status: 0 done, 1 failed, 2 bad usage or configuration, 70 device lost."}
	return c
}

// needsCommand makes a group of commands return an error unless the user names one of the commands.
func needsCommand(group *cobra.Command) {
	group.Args = commandsOnly
	group.RunE = func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(os.Stderr, help(cmd, width(os.Stderr)))
		return usageError{fmt.Errorf("%s: name one of its commands", nameOf(cmd))}
	}
}

// commandsOnly returns an error for the arguments of a command that has subcommands. Cobra passes arguments only if the
// first one names no subcommand.
func commandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	fmt.Fprint(os.Stderr, help(cmd, width(os.Stderr)))
	text := fmt.Sprintf("there is no command %q", args[0])
	if cmd.HasParent() {
		text = nameOf(cmd) + ": " + text
	}
	if cmd.SuggestionsMinimumDistance = 2; args[0] != "" {
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += ": did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	return errors.New(text)
}

// flagsOnly returns an error for arguments of a command that has only flags.
func flagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, not %q: see %s -h", nameOf(cmd), args[0], cmd.CommandPath())
	}
	return nil
}

// oneOf returns a check for exactly one argument. The parameter what names the argument in the error.
func oneOf(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: give one %s, not %d: see %s -h", nameOf(cmd), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// nameOf returns the name of a command for errors, such as "operator new".
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// flagError returns the error of a flag with the name of the command and a reference to the command's help.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = invalidValue(invalid)
	}
	if err = fmt.Errorf("%w: see %s -h", err, cmd.CommandPath()); cmd.HasParent() {
		err = fmt.Errorf("%s: %w", nameOf(cmd), err)
	}
	return err
}

// invalidValue returns the error for an invalid flag value in plain words, without the text of Go's parsers.
func invalidValue(err *pflag.InvalidValueError) error {
	wanted, known := map[string]string{
		"int": "give a whole number", "uint64": "give a whole number from 0 on", "float64": "give a number", "bool": "give true or false",
	}[err.GetFlag().Value.Type()]
	switch {
	case !known:
		wanted = err.Unwrap().Error()
	case errors.Is(err, strconv.ErrRange):
		wanted = "the number is out of range"
	}
	return fmt.Errorf("--%s is %q: %s", err.GetFlag().Name, err.GetValue(), wanted)
}

// complete makes shells complete the value of a flag with words.
func complete(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag doesn't exist
	}
}
