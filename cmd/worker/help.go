package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"millrace/internal/console"
)

// notes is the key of the annotation with the text below the flags in a command's help.
const notes = "notes"

// widest is the maximum width of a help text in columns, because longer lines are hard to read.
const widest = 120

// width returns the width of a help text on f.
func width(f *os.File) int { return min(console.Width(f), widest) }

func printHelp(cmd *cobra.Command, _ []string) { fmt.Print(help(cmd, width(os.Stdout))) }

// help returns the help of a command, wrapped at width columns.
func help(cmd *cobra.Command, width int) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	b.WriteString(console.Wrap(about, width, 0))
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " [command] [flags]"
	}
	fmt.Fprintf(&b, "\nUsage: %s\n", use)
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		writeCommands(&b, cmd, width)
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(width))
	if text := cmd.Annotations[notes]; text != "" {
		b.WriteString("\n" + console.Wrap(text, width, 0))
	}
	return b.String()
}

// writeCommands writes a line for each command of a group. It wraps and indents long descriptions.
func writeCommands(b *strings.Builder, group *cobra.Command, width int) {
	longest := 0
	var available []*cobra.Command
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			available = append(available, c)
			longest = max(longest, len(c.Name()))
		}
	}
	indent := 2 + longest + 2
	for _, c := range available {
		text := console.Wrap(c.Short, width, indent)
		fmt.Fprintf(b, "  %-*s  %s", longest, c.Name(), text[indent:])
	}
}

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "write the man pages into a folder",
		Long: "Writes a man page for worker and for each of its commands into FOLDER, which it creates if it doesn't exist. If SOURCE_DATE_EPOCH is set, " +
			"the pages have that date.",
		Example: "  worker man /usr/local/share/man/man1",
		Args:    oneOf("folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

func writeManPages(root *cobra.Command, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	root.Long += "\n\n" + root.Annotations[notes]
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Millrace " + build().Version, Manual: "Millrace"}, folder); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	page, err := filepath.Abs(filepath.Join(folder, "worker.1"))
	if err != nil {
		return err
	}
	fmt.Printf("wrote %s and a page for each command: read them with man %s\n", page, page)
	return nil
}
