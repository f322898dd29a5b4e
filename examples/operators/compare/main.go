// Command compare measures CPU implementations of the example operators, with one core and with all cores. They are the fastest
// implementations that we found or wrote. README.md describes how to build and run it.
//
//	compare [entropy blake3 simhash keywords redact]
//
// It prints the median in GB/s of payload, for records of 256 B, 2 KiB and 64 KiB. It exits with 1 if two implementations of an operator
// return different results.
package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
)

// corpusBytes is the total size of the records of a run. It exceeds the caches of a core.
const corpusBytes = 64 << 20

type implementation struct {
	operator, name string
	// run computes records [first, end), and sets out[i] to a number that represents the result of record i.
	run func(c *records, out []uint64, first, end int)
}

// implementations returns all implementations, grouped by operator.
func implementations() []implementation {
	return slices.Concat(entropies(), blake3s(), simhashes(), keywordses(), redactors())
}

func main() {
	if err := compare(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// compare measures the implementations of the named operators, or of all operators if none is named.
func compare(operators []string) error {
	all := implementations()
	for _, name := range operators {
		if !slices.ContainsFunc(all, func(i implementation) bool { return i.operator == name }) {
			return fmt.Errorf("no operator %q: name entropy, blake3, simhash, keywords or redact", name)
		}
	}
	if len(operators) > 0 {
		all = slices.DeleteFunc(all, func(i implementation) bool { return !slices.Contains(operators, i.operator) })
	}
	cores := runtime.GOMAXPROCS(0)
	fmt.Printf("%d cores, %s\n\n", cores, processor())
	fmt.Printf("%-9s %-30s %8s %12s %12s\n", "operator", "implementation", "records", "1 core", fmt.Sprintf("%d cores", cores))
	for _, size := range []int{256, 2 << 10, 64 << 10} {
		if err := compareRecords(all, newRecords(size, corpusBytes), cores); err != nil {
			return fmt.Errorf("records of %d bytes: %w", size, err)
		}
	}
	return nil
}

// compareRecords measures the implementations with a corpus and prints their rows.
func compareRecords(all []implementation, c *records, cores int) error {
	var expected []uint64
	previous := ""
	for _, i := range all {
		if i.operator != previous {
			expected, previous = nil, i.operator
		}
		out := make([]uint64, c.rows())
		one, every := measure(c, i, out, 1), measure(c, i, out, cores)
		if expected == nil {
			expected = out
		}
		if !slices.Equal(out, expected) {
			return fmt.Errorf("%s by %q has other results than the first implementation", i.operator, i.name)
		}
		fmt.Printf("%-9s %-30s %8d %7.2f GB/s %7.2f GB/s\n", i.operator, i.name, len(c.record(0)), one, every)
	}
	return nil
}
