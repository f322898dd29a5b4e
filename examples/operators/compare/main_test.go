package main

import "testing"

// TestImplementationsAgree: all implementations of an operator return the same results. A difference is an error.
func TestImplementationsAgree(t *testing.T) {
	for _, size := range []int{8, 100, 256, 1000, 2 << 10, 64 << 10} {
		if err := compareRecords(implementations(), newRecords(size, 64*size), 2); err != nil {
			t.Errorf("records of %d bytes: %v", size, err)
		}
	}
}

func TestDifferentResultsAreAnError(t *testing.T) {
	constant := func(n uint64) implementation {
		return implementation{"same", "constant", perRecord(func([]byte) uint64 { return n })}
	}
	if err := compareRecords([]implementation{constant(1), constant(2)}, newRecords(100, 6400), 1); err == nil {
		t.Error("no error")
	}
}

// TestKeywordsAndNumbersAreFound: the generated texts contain keywords, and redact masks long numbers.
func TestKeywordsAndNumbersAreFound(t *testing.T) {
	c := newRecords(2<<10, 128<<10)
	found := make([]uint64, c.rows())
	keywordses()[0].run(c, found, 0, c.rows())
	if found[0] == 0 {
		t.Error("no keyword in 2 KiB of text")
	}
	record := []byte("4111 1111 1111 1234 and 12 and 123456789012")
	if got := redact(record); got != 2 {
		t.Errorf("redact masks %d numbers", got)
	}
}
