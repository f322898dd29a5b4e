package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/config"
	"millrace/internal/wildcard"
)

// sendSubject returns named, which must be a subject that the worker reads. If named is empty, it returns a default.
func sendSubject(cfg *config.Config, named string) (string, error) {
	if named == "" {
		return strings.NewReplacer("*", "send", ">", "send").Replace(cfg.Subjects[0]), nil
	}
	if strings.ContainsAny(named, "*>") {
		return "", fmt.Errorf("--subject is %q: give a subject without wildcards", named)
	}
	if err := wellFormed(named); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(cfg.Subjects, func(filter string) bool { return wildcard.Covers(filter, named) }) {
		return "", fmt.Errorf("--subject is %q, which the worker doesn't read: it reads %s (MILLRACE_SUBJECTS)", named, cfg.Subjects)
	}
	return named, nil
}

// checkInputFilter returns an error if no input of the worker can match the filter. An empty filter matches all inputs.
func checkInputFilter(cfg *config.Config, filter string) error {
	if filter == "" {
		return nil
	}
	if err := wellFormed(filter); err != nil {
		return err
	}
	if slices.ContainsFunc(cfg.Subjects, func(read string) bool { return wildcard.Overlap(read, filter) }) {
		return nil
	}
	advice := "give the subject of inputs, or set MILLRACE_SUBJECTS as for the worker"
	for _, prefix := range []string{cfg.ResultPrefix, cfg.DeadletterPrefix} {
		if wildcard.Covers(prefix+".>", filter) || filter == prefix {
			advice = "give the subject of inputs, not that of their results or dead letters"
		}
	}
	return fmt.Errorf("--subject is %q, which no input of the worker has: it reads %s (MILLRACE_SUBJECTS): %s", filter, cfg.Subjects, advice)
}

// wellFormed returns an error if --subject is neither a subject nor a filter.
func wellFormed(subject string) error {
	if what := config.WrongFilter(subject); what != "" {
		return fmt.Errorf("--subject is %q: %s: give tokens with dots between them, such as ingest.web.en", subject, what)
	}
	return nil
}

// noEmptyFlags returns an error for a flag with an empty value, such as the value of an unset shell variable. The flag would act as if it
// were omitted.
func noEmptyFlags(cmd *cobra.Command, _ []string) error {
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" || f.Value.Type() == "stringSlice" && f.Value.String() == "[]" {
			errs = append(errs, fmt.Errorf("%s: --%s is empty: give a %s, or leave the flag out", nameOf(cmd), f.Name, argumentOf(f)))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// argumentOf returns the name of a flag's value in the help.
func argumentOf(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	return name
}
