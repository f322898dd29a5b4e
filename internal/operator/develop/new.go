package develop

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
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
