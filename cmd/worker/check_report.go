package main

import (
	"fmt"
	"os"
	"strings"

	"millrace/internal/console"
	"millrace/internal/ingest/finding"
)

// report prints the findings and returns errReported if one is an error.
func report(findings []finding.Finding) error {
	columns := 0
	if console.IsTerminal(os.Stdout) {
		columns = width(os.Stdout)
	}
	for _, f := range findings {
		fmt.Print(foundText(f, columns))
	}
	errs, warnings := count(findings)
	fmt.Printf("\n%s: %s, %s\n", counted(len(findings), "finding"), counted(errs, "error"), counted(warnings, "warning"))
	return failed(errs)
}

// counted returns a number with a noun, in the plural unless the number is 1.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// foundText returns a finding and its advice, wrapped at that many columns; 0: in one line each.
func foundText(f finding.Finding, columns int) string {
	found, advice := f.What+": "+f.Found, "-> "+f.Advice
	const indent = 9
	if columns > 0 {
		found, advice = strings.TrimSpace(console.Wrap(found, columns, indent)), strings.TrimSpace(console.Wrap(advice, columns, indent))
	}
	text := fmt.Sprintf("%-8s %s\n", f.Level, found)
	if f.Advice != "" {
		text += fmt.Sprintf("%-8s %s\n", "", advice)
	}
	return text
}

// foundJSON is a finding in the output of `worker check --json`, and reportedJSON the whole output.
type (
	foundJSON struct {
		Level  string `json:"level"` // ok, warning or error
		What   string `json:"what"`
		Found  string `json:"found"`
		Advice string `json:"advice,omitempty"`
	}
	reportedJSON struct {
		Findings []foundJSON `json:"findings"`
		Errors   int         `json:"errors"`
		Warnings int         `json:"warnings"`
	}
)

// reportJSON is report for programs.
func reportJSON(findings []finding.Finding) error {
	r := reportedJSON{Findings: []foundJSON{}}
	for _, f := range findings {
		r.Findings = append(r.Findings, foundJSON{f.Level.String(), f.What, f.Found, f.Advice})
	}
	r.Errors, r.Warnings = count(findings)
	if err := writeJSON(os.Stdout, r); err != nil {
		return err
	}
	return failed(r.Errors)
}

// count returns how many findings are errors and how many are warnings.
func count(findings []finding.Finding) (errs, warnings int) {
	for _, f := range findings {
		switch f.Level {
		case finding.Error:
			errs++
		case finding.Warning:
			warnings++
		}
	}
	return errs, warnings
}

// failed returns the error of a check that found that many errors.
func failed(errs int) error {
	if errs > 0 {
		return errReported
	}
	return nil
}
