package main

import (
	"context"
	"errors"
	"os"

	"millrace/internal/config"
	"millrace/internal/operator"
)

// loadConfig reads the environment. What only other rooms can judge is checked with it, so that every
// problem is named at once.
func loadConfig() (*config.Config, error) {
	return config.Load(config.Check{Variable: "MILLRACE_OPERATORS", Wrong: func(c *config.Config) error {
		_, err := operator.ParseList(c.Operators.String())
		return err
	}})
}

func runConfig(_ context.Context, args []string) error {
	if err := parse(flags("config", "Lists every variable, its default, its value now and its meaning. Secrets are masked."), args); err != nil {
		return err
	}
	cfg, err := loadConfig()
	var bad *config.Error
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if perr := cfg.Print(os.Stdout); perr != nil {
		return perr
	}
	return err
}
