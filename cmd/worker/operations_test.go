package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestWorkedExampleHolds runs the worker with the example's variables from docs/operations.md. It compares the reported
// figures with the page.
func TestWorkedExampleHolds(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	env := regexp.MustCompile(`(?m)^MILLRACE_\w+=\S+$`).FindAllString(string(page), -1)
	if len(env) < 8 {
		t.Fatalf("the page has the variables %q, want the eight of its example", env)
	}
	call(t, env, "config").want(t, exitDone, env[0][strings.Index(env[0], "=")+1:])

	s := serve(t)
	p := start(t, append(env, "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_LOG_FORMAT=json"))
	p.await(`"msg":"working"`)
	for _, want := range []string{"ack wait 30s, max ack pending 98304", "duplicate window 5m0s"} {
		if !strings.Contains(p.text(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	metrics := body(t, address(t, p, "serving metrics and health")+"metrics")
	m := regexp.MustCompile(`millrace_pageable_bytes\{device="host"\} (\S+)`).FindStringSubmatch(metrics)
	if m == nil {
		t.Fatal("no millrace_pageable_bytes among the metrics")
	}
	bytes, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("= %.1f MB", bytes/1e6); !strings.Contains(string(page), want) {
		t.Errorf("the buffers of batches take %s bytes, but the page lacks %q", m[1], want)
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}
