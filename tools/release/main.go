// Command release makes the parts of a release that make can't: it checks the version, takes the notes from the changelog, writes the
// Dockerfile of the image's archive, and lists what the files contain. The targets in release.mk run it. Start reading there.
package main

import (
	"errors"
	"fmt"
	"os"
)

// commands are the subcommands with their arguments.
var commands = map[string]struct {
	args []string
	run  func(args []string) error
}{
	"check":      {[]string{"VERSION", "DRY_RUN"}, runCheck},
	"notes":      {[]string{"VERSION", "DRY_RUN"}, runNotes},
	"dockerfile": {[]string{"VERSION", "COMMIT", "TAG"}, runDockerfile},
	"sbom":       {[]string{"VERSION", "FOLDER", "CUDA"}, runSBOM},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("give a command: check, notes, dockerfile or sbom")
	}
	c, ok := commands[args[0]]
	if !ok || len(args)-1 != len(c.args) {
		return fmt.Errorf("%q takes %q, and got %q", args[0], c.args, args[1:])
	}
	return c.run(args[1:])
}
