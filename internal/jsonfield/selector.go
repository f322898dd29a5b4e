// Package jsonfield finds members in JSON records.
//
// A Selector scans a record once. It validates the whole record, and returns the ranges of the members that it looks for, so a record costs
// no allocation. Append then unescapes a string.
//
// A record is valid if encoding/json accepts it, its strings are valid UTF-8, and no value nests deeper than MaxDepth. If a name is
// repeated, the last member counts, as in Go, Python and JavaScript.
//
// Start reading at Selector.Scan.
package jsonfield

import (
	"fmt"
	"slices"
	"strings"
)

// MaxPaths is the largest number of paths of a Selector.
const MaxPaths = 32

// Selector finds the members with the given paths in a record. It is safe for concurrent use. The zero Selector only validates records.
//
// A path is the name of a member of the record, which must be an object. A path with dots, such as a.b, is the member a.b of
// the record. If the record doesn't have that member, the path is the member b of the record's member a.
type Selector struct {
	paths   []string
	needles []needle
}

// needle is one way to find a path.
type needle struct {
	path  int      // index of the path
	names []string // names of the members from the record's object to the value
	exact bool     // whether names is the whole path, although the path has dots; an exact needle has priority over the other needle of the path
}

// NewSelector returns a Selector for paths. The error describes a mistake in a path.
func NewSelector(paths []string) (Selector, error) {
	s := Selector{paths: slices.Clone(paths)}
	if len(paths) > MaxPaths {
		return Selector{}, fmt.Errorf("there are %d fields, more than %d", len(paths), MaxPaths)
	}
	for i, path := range paths {
		names := strings.Split(path, ".")
		if slices.Contains(names, "") {
			return Selector{}, fmt.Errorf("%q has an empty name", path)
		}
		if len(names) > MaxDepth {
			return Selector{}, fmt.Errorf("%q has more than %d names", path, MaxDepth)
		}
		s.needles = append(s.needles, needle{path: i, names: names})
		if len(names) > 1 {
			s.needles = append(s.needles, needle{path: i, names: []string{path}, exact: true})
		}
	}
	return s, nil
}

// Paths returns the selector's paths. The caller must not change the slice.
func (s *Selector) Paths() []string { return s.paths }

// Span is the range [Start, End) of a record. It contains the JSON text of a value. A Span without bytes means that the
// record doesn't have the member.
type Span struct{ Start, End int }

// IsAbsent reports whether the record doesn't have the member.
func (s Span) IsAbsent() bool { return s.Start == s.End }

// Match is the result of a scan. It also holds the memory of the scan, so use one Match for many records.
type Match struct {
	Object bool   // whether the record is an object
	Values []Span // the value of each of the selector's paths

	found  [2 * MaxPaths]Span // the value of each needle
	levels [MaxDepth + 1]level
	name   []byte // an unescaped name
}

// Fault is a reason why a record isn't valid. The zero Fault means that the record is valid.
type Fault struct {
	Offset int    // position in the record, in bytes
	Text   string // the mistake at that position
	Soft   bool   // whether encoding/json accepts the record: values nest too deep, or a string isn't UTF-8
}

// IsZero reports whether the record is valid.
func (f Fault) IsZero() bool { return f.Text == "" }

// Error returns the text and the position.
func (f Fault) Error() string { return fmt.Sprintf("invalid JSON at byte %d: %s", f.Offset, f.Text) }

// collect sets Values from the values of the needles.
func (m *Match) collect(s *Selector) {
	m.Values = slices.Grow(m.Values[:0], len(s.paths))[:len(s.paths)]
	clear(m.Values)
	for i, n := range s.needles {
		if v := m.found[i]; n.exact && !v.IsAbsent() || m.Values[n.path].IsAbsent() {
			m.Values[n.path] = v
		}
	}
}
