package image

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// playTime limits one build of the image's files.
const playTime = 5 * time.Minute

// TestMain also enters the jail: see jail_test.go.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == jailWord {
		fmt.Fprintln(os.Stderr, "jail:", enter(os.Args[2:])) // returns only on an error
		os.Exit(jailFailed)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "millrace-image-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(scratch); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}

// playAll runs the whole Dockerfile below dir with the arguments. Like Docker, it takes stages that no argument changes
// from the folder cache. Without a cache, it builds all stages.
func playAll(dir string, args map[string]string, cache string) error {
	f, err := os.Open(repository + "/Dockerfile")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	parsed, err := parser.Parse(f)
	if err != nil {
		return err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), playTime)
	defer cancel()
	p, err := newPlay(ctx, dir, args, func(format string, args ...any) { fmt.Printf(format, args...) })
	if err != nil {
		return err
	}
	p.cache = cache
	return p.all(stages)
}
