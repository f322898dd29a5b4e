package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// form is a semantic version without build metadata, which the tag of an image can't have.
var form = regexp.MustCompile(`^(\d+\.\d+\.\d+)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

// chartVersion finds the versions in Chart.yaml.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): "?([^"\n]+)"?$`)

// runCheck fails unless a release can be made from this tree: the changelog has a section for it, and nothing is uncommitted. A dry run
// needs neither.
func runCheck(args []string) error {
	version, dry := args[0], args[1] != ""
	chart, err := os.ReadFile("helm/millrace/Chart.yaml")
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	_, missing := notes(string(changelog), version, dry)
	problems := []error{checkVersion(version, string(chart)), missing}
	if !dry {
		problems = append(problems, checkTree())
	}
	return errors.Join(problems...)
}

// checkVersion compares the version with the chart's, which are the next release's with the suffix -dev.
func checkVersion(version, chart string) error {
	wanted := form.FindStringSubmatch(version)
	if wanted == nil {
		return fmt.Errorf("VERSION is %q: set it like 0.2.0 or 0.2.0-rc.1, without a v and without a plus", version)
	}
	found := chartVersion.FindAllStringSubmatch(chart, -1)
	if len(found) != 2 {
		return fmt.Errorf("helm/millrace/Chart.yaml has %d of version and appVersion", len(found))
	}
	for _, f := range found {
		if base := form.FindStringSubmatch(f[2]); base == nil || base[1] != wanted[1] {
			return fmt.Errorf("VERSION is %s, and %s in helm/millrace/Chart.yaml is %s: set VERSION to that release, or write %s-dev there first", version, f[1], f[2], wanted[1])
		}
	}
	return nil
}

// checkTree fails if a file differs from the commit, which is stamped into the binaries.
func checkTree() error {
	changed, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return fmt.Errorf("these files are not committed; commit them, or set DRY_RUN=1:\n%s", strings.TrimRight(string(changed), "\n"))
	}
	return nil
}
