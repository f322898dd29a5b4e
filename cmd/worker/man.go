package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand returns `worker man`.
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

// writeManPages writes the pages into folder.
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
