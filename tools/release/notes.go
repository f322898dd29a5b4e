package main

import (
	"fmt"
	"os"
	"strings"
)

// unreleased is the changelog's section for what no release has yet.
const unreleased = "Unreleased"

// runNotes prints the notes of a version.
func runNotes(args []string) error {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	text, err := notes(string(changelog), args[0], args[1] != "")
	if err != nil {
		return err
	}
	_, err = fmt.Print(text)
	return err
}

// notes returns the section of a version in the changelog, with a title. A dry run takes the section Unreleased if the version has none.
func notes(changelog, version string, dry bool) (string, error) {
	text, ok := section(changelog, version)
	if !ok && dry {
		text, ok = section(changelog, unreleased)
	}
	if !ok {
		return "", fmt.Errorf("CHANGELOG.md has no section \"## %s\" with a text: rename \"## %s\", or set DRY_RUN=1", version, unreleased)
	}
	return fmt.Sprintf("# Millrace %s\n\n%s\n", version, text), nil
}

// section returns the text below a heading of the second level, which may have a date after its name. It reports false if there is none or
// it is empty.
func section(changelog, name string) (text string, ok bool) {
	inside := false
	var lines []string
	for line := range strings.Lines(changelog) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			if inside {
				break
			}
			first, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			inside = first == name
			continue
		}
		if inside {
			lines = append(lines, line)
		}
	}
	text = strings.TrimSpace(strings.Join(lines, ""))
	return text, text != ""
}
