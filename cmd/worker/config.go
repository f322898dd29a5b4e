package main

import (
	"context"
	"errors"
	"os"

	"millrace/internal/config"
	"millrace/internal/ingest/embedded"
)

// someServer is the check of commands that need a NATS server. Without MILLRACE_NATS_URL, the build must have the embedded server.
var someServer = config.Check{Variable: "MILLRACE_NATS_URL", Wrong: func(c *config.Config) error {
	if c.Embedded() && !embedded.Included {
		return embedded.ErrLeftOut
	}
	return nil
}}

// runConfig implements `worker config`.
func runConfig(_ context.Context, args []string) error {
	if err := parse(flags("config", "Lists every variable with its current value, its default and its meaning. Secrets are masked."), args); err != nil {
		return err
	}
	cfg, err := config.Load(findOperators, someServer)
	var bad *config.Error
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if perr := cfg.Print(os.Stdout); perr != nil {
		return perr
	}
	return err
}
