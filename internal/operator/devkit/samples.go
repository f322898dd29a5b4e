package devkit

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/operator/compiled"
)

// template is a commented operator with samples. The word NAME is a placeholder for the operator's name.
//
//go:embed template
var template embed.FS

// New writes a template operator into the folder: NAME.cu, and a folder NAME.samples with records and their expected results. It
// returns the paths of the files. It doesn't replace existing files.
func New(folder, name string) (written []string, err error) {
	if err := compiled.CheckName(name); err != nil {
		return nil, err
	}
	err = fs.WalkDir(template, "template", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := template.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(folder, name+compiled.SourceSuffix)
		if sample, ok := strings.CutPrefix(path, "template/samples/"); ok {
			to = filepath.Join(samplesFolder(to), sample)
		}
		written = append(written, to)
		return create(to, strings.ReplaceAll(string(text), "NAME", name))
	})
	return written, err
}

// create writes a new file, and creates its folder if necessary. It fails if the file already exists.
func create(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for everybody
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // sources are for everybody
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Sample is a record that the author of an operator supplies.
type Sample struct {
	Name string
	Data []byte
	Want []byte // expected JSON value, or "rejected: " and the reason; nil without an expected result
}

// Limits of samples.
const (
	maxSamples     = 10_000
	maxSampleBytes = 64 << 20
	expectedSuffix = ".json" // suffix of the file with the expected result of a sample
)

// ReadSamples reads the records in a folder, one per file, in the order of their names. The file NAME.json has the expected result of
// the record in the file NAME: its JSON value, or "rejected: " and the reason. If folder is "", ReadSamples uses the folder of the
// source file's samples, which may be missing.
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
	files := map[string]bool{}
	for _, e := range entries {
		files[e.Name()] = e.Type().IsRegular()
	}
	var samples []Sample
	total := 0
	for _, e := range entries { // sorted by name
		name := e.Name()
		if record, ok := strings.CutSuffix(name, expectedSuffix); !files[name] || ok && files[record] {
			continue
		}
		s := Sample{Name: name}
		if s.Data, err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
		if files[name+expectedSuffix] {
			if s.Want, err = os.ReadFile(filepath.Join(folder, name+expectedSuffix)); err != nil {
				return nil, err
			}
		}
		samples = append(samples, s)
		if total += len(s.Data); total > maxSampleBytes || len(samples) > maxSamples {
			return nil, fmt.Errorf("%s: samples may be at most %d files and %d MiB", folder, maxSamples, maxSampleBytes>>20)
		}
	}
	return samples, nil
}

// samplesFolder returns the folder with the samples of an operator's file, which may be a compiled file.
func samplesFolder(file string) string {
	stem, _ := compiled.CutSuffix(file)
	return stem + ".samples"
}

func records(samples []Sample) (records [][]byte) {
	for _, s := range samples {
		records = append(records, s.Data)
	}
	return records
}

// samplesBatch is the name of the batch of samples in findings.
const samplesBatch = "samples"

// checkSamples returns a finding for each sample whose answer differs from its expected result.
func checkSamples(samples []Sample, answers []Answer) (found []Finding) {
	for i, s := range samples {
		if want := bytes.TrimSpace(s.Want); s.Want != nil && string(want) != answers[i].String() {
			found = append(found, Finding{Kind: Unexpected, Batch: samplesBatch, Record: i, Data: s.Data,
				Text: fmt.Sprintf("the result of sample %s is %s, want %s", s.Name, answers[i], want)})
		}
	}
	return found
}
