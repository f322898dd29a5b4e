package config

import (
	"fmt"
	"strings"
)

// Problem is something wrong with one variable.
type Problem struct {
	Variable string // its full name
	Value    string // its value, masked if it is a secret
	What     string // what is wrong
	Do       string // what to do about it: "set ...", "unset ..."
}

// String returns the problem as one line.
func (p Problem) String() string {
	separator := "; "
	if strings.Contains(p.What, "\n") { // what a compiler wrote
		separator = "\n  -> "
	}
	return fmt.Sprintf("%s=%q: %s%s%s", p.Variable, p.Value, strings.TrimRight(p.What, "\n"), separator, p.Do)
}

// Error holds every problem of the configuration, in the order of the variables.
type Error struct {
	Problems []Problem
}

// Error returns a heading and one line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	noun := "problems"
	if len(e.Problems) == 1 {
		noun = "problem"
	}
	fmt.Fprintf(&b, "%d %s in the configuration:", len(e.Problems), noun)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}
