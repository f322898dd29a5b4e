package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file writes a trace of two pipelines: in one the engines take turns, in the other they work on three batches at once.
func file(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`{"traceEvents":[{"name":"process_name","ph":"M","pid":1,"args":{"name":"serial 1 MiB"}},{"name":"process_name","ph":"M","pid":2,"args":{"name":"triple 1 MiB"}}`)
	for batch := range 40 {
		for stage, engine := range engines {
			for pid, start := range map[int]int{1: 300*batch + 100*stage, 2: 100*batch + 100*stage} {
				fmt.Fprintf(&b, `,{"name":"batch %d","cat":"%s","ph":"X","pid":%d,"ts":%d,"dur":100}`, batch, engine, pid, start)
				fmt.Fprintf(&b, `,{"name":"%s","cat":"%s","ph":"X","pid":%d,"ts":%d,"dur":100}`, engine, engine, pid, start) // the same on its lane
			}
		}
	}
	b.WriteString("]}")
	path := filepath.Join(t.TempDir(), "trace.json")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPicture: the result is an SVG with both panels, their paces, and overlap if there is some.
func TestPicture(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-trace", file(t), "-for", "1000", "in turns=^serial", "at once=^triple"}, &out); err != nil {
		t.Fatal(err)
	}
	svg := out.String()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
	if want := `aria-label="in turns: 300 microseconds a batch; at once: 100 microseconds a batch"`; !strings.Contains(svg, want) {
		t.Errorf("the picture has no %s:\n%.200s", want, svg)
	}
	one, other, _ := strings.Cut(svg, `>at once</text>`)
	if strings.Contains(one, `class="three"`) || strings.Contains(one, `class="two"`) {
		t.Error("there is overlap where engines take turns")
	}
	if n := strings.Count(other, `class="three"`); n != 10 {
		t.Errorf("%d stretches with all engines busy, want 10", n)
	}
}

// TestPictureRefuses: invalid input gives an error.
func TestPictureRefuses(t *testing.T) {
	path := file(t)
	for want, args := range map[string][]string{
		"want -trace FILE":       {"x=y"},
		"no such file":           {"-trace", path + "x", "x=y"},
		"want TITLE=PATTERN":     {"-trace", path, "serial"},
		"0 pipelines are called": {"-trace", path, "x=nothing"},
		"2 pipelines are called": {"-trace", path, "x=MiB"},
		"has 1 batches in 50 us": {"-trace", path, "-for", "50", "x=serial"},
		"missing closing ]":      {"-trace", path, "x=["},
	} {
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", args, err, want)
		}
	}
}
