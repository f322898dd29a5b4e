package main

import (
	"context"
	"errors"
	"os"

	"millrace/internal/config"
	"millrace/internal/ingest/embedded"
	"millrace/internal/operator"
)

// loadConfig reads the environment. It adds the checks that need other packages, so that the error names every problem at once. more
// holds the checks of one command.
func loadConfig(more ...config.Check) (*config.Config, error) {
	return config.Load(append(more, config.Check{Variable: "MILLRACE_OPERATORS", Wrong: func(c *config.Config) error {
		_, err := operator.ParseList(c.Operators.String())
		return err
	}})...)
}

// someServer is the check of commands that need a NATS server. Without MILLRACE_NATS_URL, the build must have the embedded server.
var someServer = config.Check{Variable: "MILLRACE_NATS_URL", Wrong: func(c *config.Config) error {
	if c.Embedded() && !embedded.Included {
		return embedded.ErrLeftOut
	}
	return nil
}}

// runConfig is `worker config`.
func runConfig(_ context.Context, args []string) error {
	if err := parse(flags("config", "Lists every variable with its current value, its default and its meaning. Secrets are masked."), args); err != nil {
		return err
	}
	cfg, err := loadConfig(someServer)
	var bad *config.Error
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if perr := cfg.Print(os.Stdout); perr != nil {
		return perr
	}
	return err
}
