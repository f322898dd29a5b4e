// Command picture draws the activity of engines as an SVG, from a trace of `worker bench --trace` or
// `worker demo --timeline`. Each named pipeline becomes a panel.
//
//	go run ./tools/picture -trace trace.json -for 2200 'one after another=schedules/serial .*16 MiB' 'overlapped=schedules/triple .*16 MiB' >overlap.svg
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("picture", flag.ContinueOnError)
	path := f.String("trace", "", "the `file` with the trace")
	span := f.Float64("for", 2000, "how much of each pipeline is drawn, in `microseconds`, from its middle on")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *path == "" || f.NArg() == 0 || *span <= 0 {
		return errors.New("want -trace FILE, -for above 0, and a panel for each pipeline, as in 'overlapped=schedules/triple .*16 MiB'")
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	t, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	var panels []panel
	for _, arg := range f.Args() {
		title, pattern, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: want TITLE=PATTERN", arg)
		}
		of, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		p, err := t.panel(title, of, *span)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	return draw(out, panels, *span)
}
