package frame

import (
	"strconv"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowType is the type of a column, numbered as the union Type in Arrow's Schema.fbs. A type that isn't listed below has two
// buffers: one that marks the nulls, and one of values or offsets.
type arrowType uint8

const (
	typeNull          arrowType = 1
	typeInt           arrowType = 2
	typeFloatingPoint arrowType = 3
	typeBinary        arrowType = 4
	typeUtf8          arrowType = 5
	typeBool          arrowType = 6
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

// These constants are the slots of the fields of the tables Schema and Field in Arrow's Schema.fbs.
const (
	schemaEndianness flatbuffers.VOffsetT = 4 + 2*iota
	schemaFields
)

const (
	fieldName flatbuffers.VOffsetT = 4 + 2*iota
	_
	fieldTypeType
	fieldType
	fieldDictionary
	fieldChildren
)

// Limits of a schema. Without them, the schema of a small message could take a long time to read.
const (
	maxArrowFields  = 1 << 16 // fields at all levels together
	maxArrowNesting = 64
)

// arrowColumn is the column that holds the records, and its position in a record batch. Nodes and buffers are numbered
// over all columns and their children, in the order of the schema.
type arrowColumn struct {
	typ  arrowType
	node int // index of its field node

	// The index of the column's first buffer is buffers plus the number of data buffers of all view columns before it.
	// views is the number of those columns. In a message before version 5 of the format, the index is higher by unions.
	buffers, views, unions int

	dictionary arrowDictionary
	number     arrowNumber // describes the values of a column with numbers or booleans
}

// arrowDictionary describes the dictionary of a column. Each row of the column is an index into the values, which are in separate messages.
type arrowDictionary struct {
	id    int64
	width int // bytes of an index; 0 if the column has no dictionary
}

const adviceOnColumn = ": set MILLRACE_FIELD to a binary or string column"

// arrowSchema reads the fields of a schema, and counts their nodes and buffers in a record batch.
type arrowSchema struct {
	schema flatbuffers.Table
	next   arrowColumn // position of the next field
	fields int
	fault  string // error text; empty if the schema is valid
}

// findColumn returns the column with the given name, or the only binary or string column if name is empty. It also
// returns an error text for the user, which is empty on success.
func (a *arrowSchema) findColumn(name string) (arrowColumn, string) {
	if a.schema.GetInt16Slot(schemaEndianness, 0) != 0 {
		return arrowColumn{}, "the stream is big-endian: write it on a little-endian machine"
	}
	var found arrowColumn
	matches := 0
	for field := range tablesIn(&a.schema, schemaFields) {
		a.next.typ = typeOf(&field)
		wanted := name == "" || string(nameOf(&field)) == name
		if wanted && a.next.typ.holdsRecords() {
			found = a.next
			found.dictionary = a.dictionary(&field)
			matches++
		}
		if a.pass(&field, 0); a.fault != "" {
			return found, a.fault
		}
	}
	if matches == 1 {
		return found, ""
	}
	return found, a.explain(name, matches)
}

func typeOf(field *flatbuffers.Table) arrowType {
	return arrowType(field.GetUint8Slot(fieldTypeType, 0))
}

func nameOf(field *flatbuffers.Table) []byte {
	first, n := vectorIn(field, fieldName, 1)
	return field.Bytes[first:][:n]
}

// explain returns the error text for a schema that doesn't have exactly one matching column.
func (a *arrowSchema) explain(name string, matches int) string {
	var candidates []string
	for field := range tablesIn(&a.schema, schemaFields) {
		if typeOf(&field).holdsRecords() {
			candidates = append(candidates, quote(nameOf(&field)))
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

func (a *arrowSchema) dictionary(field *flatbuffers.Table) arrowDictionary {
	const id, indexType, bitWidth = 4, 6, 4 // slots of the tables DictionaryEncoding and Int
	encoding, ok := tableIn(field, fieldDictionary)
	if !ok {
		return arrowDictionary{}
	}
	bits := int32(32)
	if integer, ok := tableIn(&encoding, indexType); ok {
		bits = integer.GetInt32Slot(bitWidth, 0)
	}
	switch bits {
	case 8, 16, 32, 64:
	default:
		a.fault = "the schema has a dictionary with indices of an unknown size: " + adviceOnStream
	}
	return arrowDictionary{id: encoding.GetInt64Slot(id, 0), width: int(bits / 8)}
}

// holdsRecords reports whether the values of a column can be records.
func (a arrowType) holdsRecords() bool {
	switch a {
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeBinaryView, typeUtf8View:
		return true
	}
	return false
}

// isView reports whether the column has one view per value and any number of data buffers.
func (a arrowType) isView() bool { return a == typeBinaryView || a == typeUtf8View }

// isLarge reports whether the column has offsets of 8 bytes.
func (a arrowType) isLarge() bool { return a == typeLargeBinary || a == typeLargeUtf8 }

// pass moves next past a field and its children.
func (a *arrowSchema) pass(field *flatbuffers.Table, depth int) {
	if a.fields++; a.fields > maxArrowFields || depth > maxArrowNesting {
		a.fault = "the schema has too many columns, or they are nested too deeply: send only the columns that are needed"
	}
	if a.fault != "" {
		return
	}
	a.next.node++
	if field.Offset(fieldDictionary) != 0 {
		a.next.buffers += 2 // the indices and their validity; the values are in separate messages
		return
	}
	a.passBuffers(field)
	for child := range tablesIn(field, fieldChildren) {
		if a.pass(&child, depth+1); a.fault != "" {
			return
		}
	}
}

// passBuffers moves next past the buffers of a field, without its children.
func (a *arrowSchema) passBuffers(field *flatbuffers.Table) {
	switch typ := typeOf(field); typ {
	case typeNull, typeRunEndEncoded:
	case typeStruct, typeFixedSizeList:
		a.next.buffers++
	case typeUnion:
		a.next.unions++
		a.next.buffers++
		const mode, dense = 4, 1
		if union, ok := tableIn(field, fieldType); ok && union.GetInt16Slot(mode, 0) == dense {
			a.next.buffers++
		}
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeListView, typeLargeListView:
		a.next.buffers += 3
	case typeBinaryView, typeUtf8View:
		a.next.buffers += 2
		a.next.views++
	default:
		if typ == 0 || typ > lastArrowType {
			a.fault = "the schema has a column of an unknown type: send only the columns that are needed"
		}
		a.next.buffers += 2
	}
}

// quote returns the name of a column in quotes. It truncates a long name.
func quote(name []byte) string {
	const limit = 64
	if len(name) > limit {
		return strconv.Quote(string(name[:limit])) + "..."
	}
	return strconv.Quote(string(name))
}
