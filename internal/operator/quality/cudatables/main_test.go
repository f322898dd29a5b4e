package main

import (
	"os"
	"testing"
)

func TestHeaderIsCurrent(t *testing.T) {
	const path = "../../../../kernels/math/quality_tables.cuh"
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != header() {
		t.Errorf("%s differs from the generator's output: run go generate ./internal/operator/quality", path)
	}
}
