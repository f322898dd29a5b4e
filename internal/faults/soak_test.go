package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sizes describes the payloads of one phase of the soak.
type sizes struct {
	name     string
	min, max int // bytes
}

var phases = []sizes{
	{"tiny", 0, 64}, {"small", 500, 1500}, {"mixed", 0, 100 << 10}, {"middling", 16 << 10, 32 << 10},
	{"large", 200 << 10, 300 << 10}, {"nothing", 0, 0}, {"of the largest", 900 << 10, 1000 << 10},
}

const (
	// soakRounds is the minimum number of rounds of all phases: one to warm up, and two to compare.
	soakRounds = 3

	// soakTime is the duration of all rounds in the full form; MILLRACE_FAULTS_SOAK overrides it.
	soakTime = 10 * time.Minute

	// growth and growthBytes limit the permitted growth of a worker's memory from one part of the soak to the next. The
	// Go garbage collector makes as much as half of the memory vary by chance.
	growth, growthBytes = 1.3, 48 << 20
)

// TestSoak runs one worker at full speed with payloads of changing sizes. After each phase, when everything is settled,
// it records the worker's resources. They must not grow from the middle third of the phases to the last third.
func TestSoak(t *testing.T) {
	need(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { newRig(t, mode).soak() })
	}
}

// holding is the worker's use of resources between two phases.
type holding struct {
	resident, goroutines, pinned, reserved, used float64
}

func (r *rig) soak() {
	end := time.Now().Add(r.soakTime())
	r.serve(1)
	r.work(1)
	var all audit
	var held []holding
	first, n := uint64(1), 0
	for round := 0; round < soakRounds || time.Now().Before(end); round++ {
		for _, phase := range phases {
			r.feed(phase.payloads(), r.inputsOf(phase.size)).wait()
			r.awaitFinished()
			a := r.mustAudit(first)
			all.add(a)
			first += uint64(a.messages)
			held = append(held, r.holding(r.workers[0]))
			r.purge()
			n++
		}
	}
	r.retire()
	all.redelivered = 0 // purges make this count invalid
	r.enter("soak, phases of changing sizes", n, all)
	r.wantFlat(held)
}

func (r *rig) soakTime() time.Duration {
	r.t.Helper()
	if !isFull() {
		return 0
	}
	text := os.Getenv("MILLRACE_FAULTS_SOAK")
	if text == "" {
		return soakTime
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.t.Fatalf("MILLRACE_FAULTS_SOAK=%q: set a duration, like 10m", text)
	}
	return d
}

func (s sizes) size(rng *rand.Rand) int { return s.min + rng.IntN(s.max-s.min+1) }

// payloads returns the number of payloads in a phase. Both the number and the total bytes are limited.
func (s sizes) payloads() int {
	number, bytes := times(20_000, 500), times(256<<20, 8<<20)
	return max(min(number, bytes/(s.max+1)), 1)
}

// holding reads the worker's use of resources from its metrics and from the system.
func (r *rig) holding(w *worker) holding {
	r.t.Helper()
	return holding{
		resident:   r.resident(w),
		goroutines: r.mustMetric(w, "go_goroutines"),
		pinned:     r.mustMetric(w, "millrace_pinned_bytes") + r.mustMetric(w, "millrace_pageable_bytes"),
		reserved:   r.mustMetric(w, `millrace_scratch_pool_bytes{device="host",state="reserved"}`),
		used:       r.mustMetric(w, `millrace_scratch_pool_bytes{device="host",state="used"}`),
	}
}

func (r *rig) resident(w *worker) float64 {
	r.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		r.t.Fatalf("the system's status of the worker has no resident memory: %v", err)
	}
	return float64(n) * 1024
}

// purge empties all streams, so that the disk doesn't fill.
func (r *rig) purge() {
	r.t.Helper()
	for _, name := range append(r.outputs(), inputStream) {
		if err := r.Stream(name).Purge(r.Ctx()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wantFlat compares the last third of the recorded values with the middle third.
func (r *rig) wantFlat(held []holding) {
	r.t.Helper()
	third := len(held) / 3
	middle, last := held[third:2*third], held[len(held)-third:]
	for _, c := range []struct {
		what  string
		of    func(holding) float64
		slack float64
	}{
		{"resident memory", func(h holding) float64 { return h.resident }, growthBytes},
		{"goroutines", func(h holding) float64 { return h.goroutines }, 5},
		{"pinned or pageable bytes", func(h holding) float64 { return h.pinned }, 0},
		{"scratch reserved", func(h holding) float64 { return h.reserved }, 0},
		{"scratch used", func(h holding) float64 { return h.used }, 0},
	} {
		before, after := maximum(middle, c.of), maximum(last, c.of)
		bound := before
		if c.slack > 0 {
			bound = before*growth + c.slack
		}
		r.t.Logf("%s: %.0f in the middle, %.0f at the end", c.what, before, after)
		if after > bound {
			r.t.Errorf("%s grew from %.0f to %.0f: something is not released", c.what, before, after)
		}
	}
}

func maximum(held []holding, of func(holding) float64) float64 {
	m := 0.0
	for _, h := range held {
		m = max(m, of(h))
	}
	return m
}
