package develop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/operator/conformance"
)

// Sample is a record that the author of an operator supplies.
type Sample struct {
	Name string
	Data []byte
	Want []byte // the JSON value of its result, or "rejected: " and the reason; nil if none is given
}

// Bounds of samples.
const (
	mostSamples     = 10_000
	mostSampleBytes = 64 << 20
	expectedSuffix  = ".json" // of the file with the expected result of a sample
)

// ReadSamples reads the records in a folder, one per file, in the order of their names. A file with the name of another and .json has
// the expected result of that one: its JSON value, or "rejected: " and the reason. Without a folder name, the samples are those of
// the source file; it may have none.
func ReadSamples(source, folder string) ([]Sample, error) {
	optional := folder == ""
	if optional {
		folder = samplesFolder(source)
	}
	entries, err := os.ReadDir(folder)
	if optional && os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	var samples []Sample
	total := 0
	for _, name := range names {
		if record, ok := strings.CutSuffix(name, expectedSuffix); ok && slices.Contains(names, record) {
			continue
		}
		s := Sample{Name: name}
		if s.Data, err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
		if slices.Contains(names, name+expectedSuffix) {
			if s.Want, err = os.ReadFile(filepath.Join(folder, name+expectedSuffix)); err != nil {
				return nil, err
			}
		}
		samples = append(samples, s)
		if total += len(s.Data); total > mostSampleBytes || len(samples) > mostSamples {
			return nil, fmt.Errorf("%s: samples may be at most %d files and %d MiB", folder, mostSamples, mostSampleBytes>>20)
		}
	}
	return samples, nil
}

// samplesFolder returns the folder with the samples of an operator's file, which may be a compiled one.
func samplesFolder(file string) string { return Stem(file) + ".samples" }

// Stem returns the path of an operator's file without the suffix: "a/entropy" for "a/entropy.cu" and "a/entropy.cpu.so".
func Stem(file string) string {
	for _, suffix := range append([]string{SourceSuffix, CPUSuffix, HostSuffix}, GPUSuffixes...) {
		if stem, ok := strings.CutSuffix(file, suffix); ok {
			return stem
		}
	}
	return file
}

// Records returns the records of samples.
func Records(samples []Sample) (records [][]byte) {
	for _, s := range samples {
		records = append(records, s.Data)
	}
	return records
}

// SamplesBatch is the name of the batch of samples in findings.
const SamplesBatch = "samples"

// CheckSamples compares answers with the results that the author expects.
func CheckSamples(samples []Sample, answers []conformance.Answer) (found []conformance.Finding) {
	for i, s := range samples {
		if want := bytes.TrimSpace(s.Want); s.Want != nil && string(want) != answers[i].String() {
			found = append(found, conformance.Finding{Kind: conformance.Unexpected, Batch: SamplesBatch, Record: i, Data: s.Data,
				Text: fmt.Sprintf("the result of sample %s is %s, want %s", s.Name, answers[i], want)})
		}
	}
	return found
}
