package compiled

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxTableBytes is the maximum size of all tables of an operator.
const maxTableBytes = 1 << 24

// tableAlign is the alignment of the tables that follow a parameter block, in bytes.
const tableAlign = 16

// tableHashBytes is the number of bytes of a table's SHA-256 that a spec contains.
const tableHashBytes = 8

// maxTableName is the maximum length of a table's file name.
const maxTableName = 255

// table is the value of a parameter of type Table.
type table struct {
	file     string // name of the file; "" if unknown
	contents []byte
}

// format returns the table's value in a spec: the file's name and a part of the hash of its contents. Tables with different contents
// have different specs.
func (t table) format() string {
	hash := sha256.Sum256(t.contents)
	return t.file + "@" + hex.EncodeToString(hash[:tableHashBytes])
}

// checkTable checks a parameter of type Table. d has the parameters before p.
func (d *Description) checkTable(p Parameter) error {
	total := uint64(p.Max)
	for _, other := range d.Parameters {
		if other.Type == Table {
			total += uint64(other.Max)
		}
	}
	switch {
	case p.Shown || p.Default != 0 || p.Min < 1 || p.Max < p.Min || p.Max > maxTableBytes:
		return fmt.Errorf("%s is a table with a default, or of %d to %d bytes", p.Name, uint64(p.Min), uint64(p.Max))
	case total > maxTableBytes:
		return fmt.Errorf("tables of %d bytes", total)
	}
	return nil
}

// readTable reads a table from the file that a spec names. text is the parameter's value in the spec: NAME or NAME@HASH, where
// HASH is the hash from table.format.
func (d *Description) readTable(p Parameter, text string) (table, error) {
	file, hash, pinned := strings.Cut(text, "@")
	if err := checkTableName(file); err != nil {
		return table{}, fmt.Errorf("parameter %q is %q: %w", p.Name, text, err)
	}
	if d.Folder == "" {
		return table{}, fmt.Errorf("parameter %q is the file %q, but this program doesn't know the operator's folder", p.Name, file)
	}
	contents, err := readInside(d.Folder, file, int64(p.Max))
	if err != nil {
		return table{}, fmt.Errorf("parameter %q: %w", p.Name, err)
	}
	t := table{file, contents}
	switch {
	case len(contents) < int(p.Min) || len(contents) > int(p.Max):
		return table{}, fmt.Errorf("parameter %q: %s in %s has %s: it may have %d to %d bytes", p.Name, file, d.Folder, sizeText(len(contents), int(p.Max)), p.Min, p.Max)
	case pinned && t.format() != file+"@"+hash:
		return table{}, fmt.Errorf("parameter %q: %s in %s has other contents: it is %s, not %s", p.Name, file, d.Folder, t.format(), text)
	}
	return t, nil
}

// sizeText returns a file's size as text. If n exceeds limit, the text is "more than" the limit, because readInside stops after
// limit+1 bytes.
func sizeText(n, limit int) string {
	if n > limit {
		return fmt.Sprintf("more than %d bytes", limit)
	}
	return fmt.Sprintf("%d bytes", n)
}

// readInside reads at most limit+1 bytes of a file in a folder. It follows symbolic links that stay in the folder, because a
// ConfigMap's volume contains such links.
func readInside(folder, file string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s, the folder of the operator)", err, folder)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in %s isn't a file", file, folder)
	}
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// checkTableName returns an error if file isn't a valid name of a table file in a spec.
func checkTableName(file string) error {
	err := errors.New("name a file in the operator's folder, or below it, with letters, digits, dots, hyphens and underscores")
	if len(file) > maxTableName {
		return err
	}
	for part := range strings.SplitSeq(file, "/") {
		if part == "" || part[0] == '.' || strings.ContainsFunc(part, badInFileName) {
			return err
		}
	}
	return nil
}

func badInFileName(c rune) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	return !letter && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
}

// appendTables appends the tables to a parameter block, in the layout that create in millrace.h requires.
func appendTables(block []byte, tables []table) []byte {
	if len(tables) == 0 {
		return block
	}
	block = append(block, make([]byte, alignUp(len(block), tableAlign)-len(block))...)
	start := len(block)
	for _, t := range tables {
		block = append(block, make([]byte, alignUp(len(block)-start, tableAlign)-(len(block)-start))...)
		block = append(block, t.contents...)
	}
	return block
}

// tableIn returns the table whose position and size are at place in the parameter block. It also returns the table's end.
// tables holds the contents of all tables, and end is the end of the previous table.
func (p Parameter) tableIn(place, tables []byte, end int) (table, int, error) {
	at, size := binary.LittleEndian.Uint32(place), binary.LittleEndian.Uint32(place[4:])
	from := alignUp(end, tableAlign)
	if uint64(at) != uint64(from) || uint64(size) < uint64(p.Min) || uint64(size) > uint64(p.Max) || from+int(size) > len(tables) {
		return table{}, 0, fmt.Errorf("table %q has %d bytes at byte %d of %d: give %d to %d bytes at byte %d", p.Name, size, at, len(tables), p.Min, p.Max, from)
	}
	return table{contents: bytes.Clone(tables[from : from+int(size)])}, from + int(size), nil
}
