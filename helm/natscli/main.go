// Command natscli checks command lines of the nats command without running them. Each line of its input is a command line as a JSON list of
// words, without the first word, nats. For each command line, it writes an empty line if nats accepts it, and otherwise nats' error.
// helm/runbooks runs it with the commands of the documentation.
//
// It is a separate module, because nats has many dependencies.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/choria-io/fisk"
	"github.com/nats-io/natscli/cli"
)

func main() {
	if err := check(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "natscli:", err)
		os.Exit(1)
	}
}

// check reads command lines and writes a line of output for each.
func check(from io.Reader, to io.Writer) error {
	lines := json.NewDecoder(from)
	for {
		var words []string
		switch err := lines.Decode(&words); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		wrong, err := parse(words)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(to, wrong); err != nil {
			return err
		}
	}
}

// errParsed stops the parser before it runs a valid command.
var errParsed = errors.New("parsed")

// parse returns nats' error for a command line, or an empty string if nats accepts it.
func parse(words []string) (wrong string, err error) {
	app := fisk.New("nats", "")
	app.Terminate(nil)
	app.UsageWriter(io.Discard)
	app.ErrorWriter(io.Discard)
	if _, err := cli.ConfigureInApp(app, nil, false); err != nil {
		return "", err
	}
	for _, flag := range []string{"server", "creds", "context"} { // nats adds these flags in its main function
		if app.GetFlag(flag) == nil {
			app.Flag(flag, "").String()
		}
	}
	app.Validate(func(*fisk.Application) error { return errParsed }) // called last before the command's action
	switch _, err := app.Parse(words); {
	case errors.Is(err, errParsed):
		return "", nil
	case err != nil:
		return err.Error(), nil
	}
	return "", fmt.Errorf("nats ran %q, which must not happen", words)
}
