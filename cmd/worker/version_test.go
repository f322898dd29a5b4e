package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"millrace/internal/telemetry"
)

// TestBuildSaysWhatIsKnown checks the version of a release, of checkouts, and of a build without version information.
func TestBuildSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	const revision = "cc4a1a16e24c8f1e3c58ad1e61e2f4b2a0a4d111"
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	from := debug.BuildSetting{Key: "vcs.revision", Value: revision}
	for name, c := range map[string]struct {
		version, commit string
		info            *debug.BuildInfo
		want            telemetry.Build
	}{
		"a release":            {"v1.2.3", "abc", info("(devel)", from), telemetry.Build{Version: "v1.2.3", Commit: "abc"}},
		"go build, a checkout": {"", "", info("v0.0.0-20261127020222-cc4a1a16e24c", from), telemetry.Build{Version: "v0.0.0-20261127020222-cc4a1a16e24c", Commit: "cc4a1a16e24c"}},
		"a changed checkout":   {"", "", info("(devel)", from, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), telemetry.Build{Version: "a build of a checkout", Commit: "cc4a1a16e24c-dirty"}},
		"nothing":              {"", "", info("(devel)"), telemetry.Build{Version: "a build without a version", Commit: "unknown"}},
		"not even a module":    {"", "", info(""), telemetry.Build{Version: "a build without a version", Commit: "unknown"}},
	} {
		c.want.GoVersion = runtime.Version()
		if got := buildOf(c.version, c.commit, c.info); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
