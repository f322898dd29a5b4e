package frame

import (
	"strconv"
	"strings"
)

// arrowType is the type of a column, numbered as the union Type in Arrow's Schema.fbs. The types without a name here have two
// buffers: one that marks the nulls, and one of values or offsets.
type arrowType uint8

const (
	typeNull          arrowType = 1
	typeBinary        arrowType = 4
	typeUtf8          arrowType = 5
	typeStruct        arrowType = 13
	typeUnion         arrowType = 14
	typeFixedSizeList arrowType = 16
	typeLargeBinary   arrowType = 19
	typeLargeUtf8     arrowType = 20
	typeRunEndEncoded arrowType = 22
	typeBinaryView    arrowType = 23
	typeUtf8View      arrowType = 24
	typeListView      arrowType = 25
	typeLargeListView arrowType = 26

	lastArrowType = typeLargeListView
)

// The tables Schema and Field: the numbers of their fields in Schema.fbs.
const (
	schemaEndianness = 0
	schemaFields     = 1

	fieldName       = 0
	fieldTypeType   = 2
	fieldType       = 3
	fieldDictionary = 4
	fieldChildren   = 5
)

// Bounds of a schema, so that a small message can't keep the reader busy.
const (
	maxArrowFields  = 1 << 16 // at all levels together
	maxArrowNesting = 64
)

// arrowColumn is the column that holds the records, and its place in a record batch. Nodes and buffers are numbered over
// all columns and their children, in the order of the schema.
type arrowColumn struct {
	typ  arrowType
	node int // index of its field node

	// The index of its first buffer is buffers, plus the number of data buffers of the view columns before it, plus
	// unions if the message is older than version 5 of the format.
	buffers, views, unions int

	dictionary arrowDictionary
}

const adviceOnColumn = ": set MILLRACE_ARROW_COLUMN to a binary or string column"

// arrowSchema walks through the fields of a schema and counts what they add to a record batch.
type arrowSchema struct {
	*flatbuffer
	next   arrowColumn // the place of the field that comes next
	fields int
	fault  string // why the schema can't be read
}

// findColumn returns the column with the given name, or the only binary or string column if name is empty. Its error is
// text for the user, and empty on success.
func (s *arrowSchema) findColumn(schema int, name string) (arrowColumn, string) {
	if s.int16Field(schema, schemaEndianness) != 0 {
		return arrowColumn{}, "the stream is big-endian: write it on a little-endian machine"
	}
	first, n := s.vectorField(schema, schemaFields, 4)
	var found arrowColumn
	matches := 0
	for i := range n {
		field := s.follow(first + 4*i)
		s.next.typ = arrowType(s.uint8Field(field, fieldTypeType))
		wanted := name == "" || string(s.textField(field, fieldName)) == name
		if wanted && s.next.typ.holdsRecords() {
			found = s.next
			found.dictionary = s.dictionary(field)
			matches++
		}
		s.pass(field, 0)
		if s.broken || s.fault != "" {
			break
		}
	}
	switch {
	case s.broken:
		return found, "the schema is not a valid FlatBuffer: " + adviceOnStream
	case s.fault != "":
		return found, s.fault
	case matches == 1:
		return found, ""
	}
	return found, s.explain(schema, name, matches)
}

// explain says why no single column holds the records.
func (s *arrowSchema) explain(schema int, name string, matches int) string {
	var candidates []string
	first, n := s.vectorField(schema, schemaFields, 4)
	for i := range n {
		field := s.follow(first + 4*i)
		typ := arrowType(s.uint8Field(field, fieldTypeType))
		if typ.holdsRecords() {
			candidates = append(candidates, quote(s.textField(field, fieldName)))
		}
		if len(candidates) == 20 {
			candidates = append(candidates, "...")
			break
		}
	}
	has := "the stream has the binary and string columns " + strings.Join(candidates, ", ")
	if len(candidates) == 0 {
		has = "the stream has no binary or string column"
	}
	switch {
	case name == "":
		return has + adviceOnColumn
	case matches > 1:
		return "several columns have the name " + quote([]byte(name)) + ": rename all but one"
	}
	return "no binary or string column has the name " + quote([]byte(name)) + ", and " + has + adviceOnColumn
}

// holdsRecords reports whether the values of a column can be records.
func (t arrowType) holdsRecords() bool {
	switch t {
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeBinaryView, typeUtf8View:
		return true
	}
	return false
}

// isView reports whether the column has one view per value and any number of data buffers.
func (t arrowType) isView() bool { return t == typeBinaryView || t == typeUtf8View }

// isLarge reports whether the column has offsets of 8 bytes.
func (t arrowType) isLarge() bool { return t == typeLargeBinary || t == typeLargeUtf8 }

// pass moves the place past a field and its children.
func (s *arrowSchema) pass(field, depth int) {
	if s.fields++; s.fields > maxArrowFields || depth > maxArrowNesting {
		s.fault = "the schema has too many columns, or they are nested too deeply: send only the columns that are needed"
	}
	if s.broken || s.fault != "" {
		return
	}
	s.next.node++
	if s.slot(field, fieldDictionary) != 0 {
		s.next.buffers += 2 // the indices and their validity. The values are in messages of their own
		return
	}
	s.passBuffers(field)
	first, n := s.vectorField(field, fieldChildren, 4)
	for i := range n {
		s.pass(s.follow(first+4*i), depth+1)
		if s.broken || s.fault != "" {
			return
		}
	}
}

// passBuffers moves the place past the buffers of a field without its children.
func (s *arrowSchema) passBuffers(field int) {
	typ := arrowType(s.uint8Field(field, fieldTypeType))
	switch typ {
	case typeNull, typeRunEndEncoded:
	case typeStruct, typeFixedSizeList:
		s.next.buffers++
	case typeUnion:
		s.next.unions++
		s.next.buffers++
		const mode, dense = 0, 1
		if union := s.tableField(field, fieldType); union != 0 && s.int16Field(union, mode) == dense {
			s.next.buffers++
		}
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeListView, typeLargeListView:
		s.next.buffers += 3
	case typeBinaryView, typeUtf8View:
		s.next.buffers += 2
		s.next.views++
	default:
		if typ == 0 || typ > lastArrowType {
			s.fault = "the schema has a column of an unknown type: send only the columns that are needed"
		}
		s.next.buffers += 2
	}
}

// quote returns the name of a column in quotes, and only the start of a long one.
func quote(name []byte) string {
	const most = 64
	if len(name) > most {
		return strconv.Quote(string(name[:most])) + "..."
	}
	return strconv.Quote(string(name))
}
