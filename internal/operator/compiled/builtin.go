package compiled

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// BuiltIn returns the descriptions of the built-in operators. Package operator makes them from these, and package cuda refuses a kernel
// library that describes them in another way. Each call returns new descriptions.
func BuiltIn() []*Description {
	return []*Description{
		{
			Name: "crc32c", Version: 1, Form: Library,
			Fields: []Field{{Name: "checksum", Type: Uint32, Count: 1, CountParameter: -1, Hex: true, BareJSON: true, BareColumn: true}},
		},
		{
			Name: "minhash", Version: 1, Form: Library,
			Parameters: []Parameter{
				{Name: "k", Type: Uint32, Shown: true, Default: 24, Least: 1, Most: 256},
				{Name: "hashes", Type: Uint32, Default: 128, Least: 1, Most: 1024},
				{Name: "seed", Type: Uint64, Shown: true, Default: 1, Most: math.MaxUint64},
			},
			Fields: []Field{{Name: "signature", Type: Uint32, Array: true, CountParameter: 1, BareColumn: true}},
		},
	}
}

// Declaration returns everything that the operator declares as one line, for example "entropy version 1, thread per record, bits=4
// (uint32, 1 to 6), peak uint32".
func (d *Description) Declaration() string {
	parts := []string{fmt.Sprintf("%s version %d", d.Name, d.Version), d.Form.String()}
	for _, p := range d.Parameters {
		text := p.Text()
		if p.Shown {
			text += " shown"
		}
		parts = append(parts, text)
	}
	for _, f := range d.Fields {
		text := d.Text(f)
		if f.BareJSON {
			text += " bare in JSON"
		}
		if f.BareColumn {
			text += " bare in Arrow"
		}
		parts = append(parts, text)
	}
	for _, r := range d.Reasons {
		parts = append(parts, fmt.Sprintf("reason %q", r))
	}
	return strings.Join(parts, ", ")
}

// Text returns the parameter's name, type, default and bounds, for example "bits=4 (uint32, 1 to 6)" or "words=FILE (table, 1 to 65536
// bytes)".
func (p Parameter) Text() string {
	if p.Type == Table {
		return p.Name + "=FILE (table, " + strconv.Itoa(int(p.Least)) + " to " + strconv.Itoa(int(p.Most)) + " bytes)"
	}
	return p.Name + "=" + p.format(p.Default) + " (" + p.Type.String() + ", " + p.format(p.Least) + " to " + p.format(p.Most) + ")"
}

// Text returns the field's name and type, for example "signature uint32[hashes]".
func (d *Description) Text(f Field) string {
	text := f.Name + " " + f.Type.String()
	switch {
	case f.CountParameter >= 0:
		text += "[" + d.Parameters[f.CountParameter].Name + "]"
	case f.Array:
		text += "[" + strconv.Itoa(f.Count) + "]"
	case f.Type == Bytes:
		text += ", at most " + f.bound()
	}
	if f.Hex {
		text += ", hex"
	}
	return text
}

// bound returns the maximum length of a byte string.
func (f Field) bound() string {
	switch {
	case f.MostPerByte == 0:
		return strconv.Itoa(f.MostBytes)
	case f.MostBytes == 0:
		return strconv.Itoa(f.MostPerByte) + " per byte"
	}
	return strconv.Itoa(f.MostBytes) + " and " + strconv.Itoa(f.MostPerByte) + " per byte"
}
