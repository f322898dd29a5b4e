package main

import (
	"context"
	"errors"
	"os"

	"millrace/internal/config"
	"millrace/internal/ingest/embedded"
	"millrace/internal/operator"
)

// loadConfig reads the environment. What only other rooms can judge is checked with it, so that every
// problem is named at once; more is what one command alone asks for.
func loadConfig(more ...config.Check) (*config.Config, error) {
	return config.Load(append(more, config.Check{Variable: "MILLRACE_OPERATORS", Wrong: func(c *config.Config) error {
		_, err := operator.ParseList(c.Operators.String())
		return err
	}})...)
}

// someServer is for commands that need a NATS server: without an address of one they start their own, if this build has it.
var someServer = config.Check{Variable: "MILLRACE_NATS_URL", Wrong: func(c *config.Config) error {
	if c.Embedded() && !embedded.Included {
		return embedded.ErrLeftOut
	}
	return nil
}}

func runConfig(_ context.Context, args []string) error {
	if err := parse(flags("config", "Lists every variable, its default, its value now and its meaning. Secrets are masked."), args); err != nil {
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
