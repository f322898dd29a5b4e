package devkit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/corpus"
	"millrace/internal/operator/compiled"
)

// maxTable is the maximum size of a table that BindAny writes, in bytes.
const maxTable = 512

// BindAny returns an operator with its default parameters. Tables have no default, so BindAny writes a file into folder
// for each table, and sets d.Folder. The file contains one word per line.
func BindAny(d *compiled.Description, folder string) (*compiled.Operator, error) {
	var query []string
	for _, p := range d.Parameters {
		if p.Type != compiled.Table {
			continue
		}
		words := bytes.ReplaceAll(corpus.Text(5, int(min(p.Max, maxTable))), []byte(" "), []byte("\n"))
		if err := os.WriteFile(filepath.Join(folder, p.Name), words, 0o600); err != nil {
			return nil, err
		}
		query = append(query, p.Name+"="+p.Name)
	}
	d.Folder = folder
	return d.Bind(strings.Join(query, "&"))
}
