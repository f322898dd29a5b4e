package develop

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/operator/compiled"
)

// template is a commented operator with samples. The word NAME stands for its name.
//
//go:embed template
var template embed.FS

// New writes an operator to start from into the folder: NAME.cu and a folder NAME.samples with records and their expected results. It
// returns the paths of the files. It replaces no file.
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
		to := filepath.Join(folder, name+SourceSuffix)
		if sample, ok := strings.CutPrefix(path, "template/samples/"); ok {
			to = filepath.Join(samplesFolder(filepath.Join(folder, name+SourceSuffix)), sample)
		}
		written = append(written, to)
		return create(to, strings.ReplaceAll(string(text), "NAME", name))
	})
	return written, err
}

// create writes a file that doesn't exist yet.
func create(path, text string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for everybody
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // likewise
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if failed := f.Close(); err == nil {
		err = failed
	}
	return err
}

// samplesFolder returns the folder with the samples of a source file.
func samplesFolder(source string) string {
	return strings.TrimSuffix(source, SourceSuffix) + ".samples"
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
