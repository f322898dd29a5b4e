package telemetry_test

import (
	"regexp"
	"strings"
	"testing"

	"millrace/internal/telemetry"
)

// TestPageAllowsItsOwnPartsOnly: the policy lists the hashes of the inline parts, so a browser runs nothing else. The
// tests of cmd/worker check that a browser accepts the hashes.
func TestPageAllowsItsOwnPartsOnly(t *testing.T) {
	_, header, text := get(t, serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))+"/")
	policy := regexp.MustCompile(`^default-src 'none'; script-src 'sha256-[A-Za-z0-9+/=]{44}'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; ` +
		`connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`)
	if got := header.Get("Content-Security-Policy"); !policy.MatchString(got) {
		t.Errorf("the policy is %s", got)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if asset := regexp.MustCompile(`(?i)(src\s*=|@import|url\(|<link[^>]*href="[^d])`).FindString(text); asset != "" {
		t.Errorf("the page loads something: %s", asset)
	}
	if inline := regexp.MustCompile(`(?i)<[^>]* (style|on[a-z]+)=`).FindString(text); inline != "" {
		t.Errorf("the policy forbids %s", inline)
	}
}

func TestPageEscapesItsBuild(t *testing.T) {
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: telemetry.Build{Version: "<script>alert(1)</script>"}}))
	_, _, text := get(t, url+"/")
	if strings.Contains(text, "<script>alert") || !strings.Contains(text, "&lt;script&gt;alert(1)") {
		t.Error("the version is written as markup")
	}
}
