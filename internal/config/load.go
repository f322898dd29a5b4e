package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"millrace/internal/operator"
)

// Check is an additional check by the caller. It covers facts that this package can't determine, such as the features
// of the build.
type Check struct {
	Variable string              // full name of the variable to check
	Wrong    func(*Config) error // returns the problem, or nil
}

// Finder returns the operators that are not built in. Load calls the Finder after it has read the other settings.
type Finder func(*Config) ([]operator.Source, error)

// readings holds the variables that are set in the environment, and the problems and warnings that Load has found.
type readings struct {
	set      map[string]string // values of the variables that are set
	unread   map[string]bool   // the variables with values that cannot be parsed
	problems []Problem
	warnings []string
}

// Load reads the environment, fills in defaults and validates the values. For invalid values, it returns an *Error with
// every problem.
//
// The Config is never nil, so a command can print the values despite an error. Do not run a worker on a Config with an
// error.
//
// Load only reads the environment and credential files, and calls find and checks. If find and checks are safe for
// concurrent use, Load is, too. find may be nil.
func Load(find Finder, checks ...Check) (*Config, error) {
	c := &Config{}
	c.scanEnvironment()
	if err := c.parse(); err != nil {
		return c, err
	}
	if !c.IsSet(Prefix + "_PROVISION") {
		c.Provision = c.Embedded()
	}
	c.DebugAddr = onLoopback(c.DebugAddr)
	c.validate(find)
	for _, check := range checks {
		if c.read.unread[check.Variable] {
			continue
		}
		if err := check.Wrong(c); err != nil {
			c.problem(check.Variable, err.Error())
		}
	}
	if len(c.read.problems) == 0 {
		if !c.IsMany() {
			c = c.shard(c.Patterns()[0], nil)
		}
		return c, nil
	}
	c.sortProblems()
	return c, &Error{Problems: c.read.problems}
}

// scanEnvironment records the variables that are set, and warns about unknown names that look like variables.
func (c *Config) scanEnvironment() {
	c.read.set = map[string]string{}
	c.read.unread = map[string]bool{}
	var known, names []string
	for _, f := range c.fields() {
		known = append(known, f.name)
	}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if slices.Contains(known, name) {
			c.read.set[name] = value
		}
		names = append(names, name)
	}
	c.warnUnknown(names, known)
}

// noVariable is a prefix that no variable can have, because names in the environment do not contain "=".
const noVariable = "="

// parse sets all fields to their defaults and then reads each variable that is set.
//
// envconfig stops at the first value that it cannot parse. So parse passes one field at a time to envconfig. A field
// with an invalid value keeps its default.
func (c *Config) parse() error {
	if err := envconfig.Process(noVariable, c); err != nil {
		return fmt.Errorf("configuration: %w", err) // the default in a tag is invalid, which a test prevents
	}
	for _, f := range c.fields() {
		if !c.IsSet(f.name) {
			continue
		}
		var bad *envconfig.ParseError
		switch err := f.read(); {
		case errors.As(err, &bad):
			c.problem(f.name, unreadable(bad))
			c.read.unread[f.name] = true
		case err != nil:
			return fmt.Errorf("configuration: %w", err)
		}
	}
	return nil
}

// unreadable returns the reason for a parse error in the wording of this package.
func unreadable(bad *envconfig.ParseError) string {
	if strings.TrimSpace(bad.Value) == "" {
		return "empty"
	}
	switch bad.TypeName {
	case "config.Size":
		return bad.Err.Error()
	case "time.Duration":
		return "not a duration like 2ms, 30s or 1m"
	case "slog.Level", "operator.Format", "frame.Framing", "compression.Encoding":
		return "not a known word"
	case "bool":
		return "neither true nor false"
	}
	return "not a whole number"
}

// problem records a problem of a variable. what describes the problem. The variable's tags determine the advice.
func (c *Config) problem(variable, what string) {
	c.problemDo(variable, what, "set "+c.field(variable).form())
}

// problemDo records a problem of a variable. what describes the problem, and do is the advice.
func (c *Config) problemDo(variable, what, do string) {
	value, set := c.read.set[variable]
	if !set {
		value = c.field(variable).text()
	}
	c.read.problems = append(c.read.problems, Problem{Variable: variable, Value: mask(variable, value), What: what, Do: do})
}

// field returns the field of the variable with the given full name. It panics if no such variable exists, because all
// names are constants of this program.
func (c *Config) field(variable string) field {
	for _, f := range c.fields() {
		if f.name == variable {
			return f
		}
	}
	panic("config: no variable " + variable)
}

func (c *Config) warn(format string, args ...any) {
	c.read.warnings = append(c.read.warnings, fmt.Sprintf(format, args...))
}

// sortProblems sorts the problems by variable, in the order of the documentation.
func (c *Config) sortProblems() {
	order := map[string]int{}
	for i, f := range c.fields() {
		order[f.name] = i
	}
	slices.SortStableFunc(c.read.problems, func(a, b Problem) int { return order[a.Variable] - order[b.Variable] })
}

// Problem describes a problem of one variable.
type Problem struct {
	Variable string // full name of the variable
	Value    string // value of the variable, without secrets
	What     string // description of the problem
	Do       string // advice, such as "set ..." or "unset ..."
}

// String returns the problem as one line.
func (p Problem) String() string {
	separator := "; "
	if strings.Contains(p.What, "\n") { // output of a compiler
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
