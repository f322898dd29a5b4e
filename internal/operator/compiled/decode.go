package compiled

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// magic begins every description.
const magic = "MILLROP\x00"

// Flags of parameters and fields.
const (
	flagShown      = 1
	flagHex        = 1
	flagBareJSON   = 2
	flagBareColumn = 4
)

// head has the layout of struct millrace_description.
type head struct {
	Magic                                  [8]byte
	Size, Bytes, Contract, BatchSize       uint32
	Version, Form, Threads, Teams, Checked uint32
	ParameterBytes                         uint32
	Parameters, Fields, Reasons            entries
	Reserved                               uint32
	Source                                 [32]byte
	Name                                   [nameBytes]byte
	Passes                                 entries
	Scratch                                scratchEntry
}

// entries has the number of entries of one kind, the size of each entry, and the position of the first entry.
type entries struct{ Count, Size, At uint32 }

// parameterEntry has the layout of struct millrace_parameter.
type parameterEntry struct {
	Name                      [nameBytes]byte
	Type, Flags, At, Reserved uint32
	Preset, Min, Max          uint64
}

// fieldEntry has the layout of struct millrace_field.
type fieldEntry struct {
	Name                               [nameBytes]byte
	Type, Flags, Count, CountParameter uint32
	Array, MaxBytes, PerByte, Reserved uint32
}

// VersionError is the error for an operator that needs a newer contract than this program implements.
type VersionError struct {
	Operator string
	Needs    uint32
}

// Error returns a text with both versions and advice.
func (v *VersionError) Error() string {
	return fmt.Sprintf("operator %q needs version %d of the operator contract and this program has version %d: use a newer worker, or compile the operator with the header of this one",
		v.Operator, v.Needs, Contract)
}

// Decode decodes a description. data may be longer than the description. The error is a *VersionError if the operator needs a newer
// contract.
func Decode(data []byte) (*Description, error) {
	var h head
	if len(data) < descriptionBytes || string(data[:len(magic)]) != magic {
		return nil, errors.New("not the description of an operator")
	}
	read(data, &h)
	name, err := text(h.Name[:])
	if err != nil || !goodName(name) {
		return nil, fmt.Errorf("the operator's name is %q: want lower-case letters, digits and underscores", name)
	}
	if h.Contract > Contract {
		return nil, &VersionError{Operator: name, Needs: h.Contract}
	}
	d := &Description{Name: name, Version: h.Version, Form: Form(h.Form), Threads: int(h.Threads), Teams: int(h.Teams),
		Checked: h.Checked != 0, Source: h.Source}
	if err := d.decode(&h, data); err != nil {
		return nil, fmt.Errorf("operator %q: its description is damaged: %w", name, err)
	}
	return d, nil
}

func (d *Description) decode(h *head, data []byte) error {
	if h.Size < descriptionBytes || h.Bytes < h.Size || h.Bytes > maxDescription || uint64(h.Bytes) > uint64(len(data)) {
		return fmt.Errorf("it has %d bytes, of which %d follow its first %d", len(data), h.Bytes, h.Size)
	}
	data = data[:h.Bytes]
	if err := d.checkForm(); err != nil {
		return err
	}
	if d.Version == 0 {
		return errors.New("version 0")
	}
	if err := h.Parameters.each(data, "parameters", parameterBytes, maxParameters, d.addParameter); err != nil {
		return err
	}
	if err := h.Fields.each(data, "fields", fieldBytes, maxFields, d.addField); err != nil {
		return err
	}
	if err := h.Reasons.each(data, "reasons", reasonBytes, maxReasons, d.addReason); err != nil {
		return err
	}
	if err := h.Passes.each(data, "passes", passBytes, maxPasses, d.addPass); err != nil {
		return err
	}
	if err := d.setScratch(h.Scratch); err != nil {
		return err
	}
	if end := d.blockBytes(); uint64(end) != uint64(h.ParameterBytes) {
		return fmt.Errorf("a parameter block of %d bytes, and its parameters end at byte %d", h.ParameterBytes, end)
	}
	return d.check()
}

func (d *Description) checkForm() error {
	if d.Form == Library && d.Threads == 0 && d.Teams == 0 {
		return nil
	}
	lanes := 0
	if d.Teams > 0 {
		lanes = d.Threads / d.Teams
	}
	switch {
	case d.Threads <= 0 || d.Threads > maxThreads || d.Threads%warp != 0 || d.Teams <= 0 || lanes*d.Teams != d.Threads:
	case d.Form == Thread && lanes == 1, d.Form == Warp && lanes == warp, d.Form == Block && d.Teams == 1:
		return nil
	}
	return fmt.Errorf("form %d with %d threads for %d records", d.Form, d.Threads, d.Teams)
}

// each calls add for each entry in data. It returns an error if there are more than maximum entries. It also returns an error if
// an entry is smaller than minimum, or the entries extend past the end of data. what names the entries in errors.
func (e entries) each(data []byte, what string, minimum, maximum uint32, add func(entry []byte) error) error {
	end := uint64(e.At) + uint64(e.Count)*uint64(e.Size)
	if e.Count > maximum || e.Size < minimum || end > uint64(len(data)) {
		return fmt.Errorf("%d %s of %d bytes from byte %d on, in %d bytes", e.Count, what, e.Size, e.At, len(data))
	}
	for i := range e.Count {
		from := e.At + i*e.Size
		if err := add(data[from : from+e.Size]); err != nil {
			return fmt.Errorf("%s, number %d: %w", what, i+1, err)
		}
	}
	return nil
}

func (d *Description) addParameter(entry []byte) error {
	var e parameterEntry
	read(entry, &e)
	name, err := text(e.Name[:])
	if err != nil {
		return err
	}
	p := Parameter{Name: name, Type: Type(e.Type), Shown: e.Flags&flagShown != 0,
		Default: Number(e.Preset), Min: Number(e.Min), Max: Number(e.Max)}
	switch {
	case !goodName(name):
		return fmt.Errorf("name %q", name)
	case !p.Type.isValid() || p.Type == Bytes:
		return fmt.Errorf("%s has type %d", name, e.Type)
	case uint64(e.At) != uint64(alignUp(d.blockBytes(), p.Type.Size())):
		return fmt.Errorf("%s is at byte %d of the parameter block, after %d bytes of others", name, e.At, d.blockBytes())
	case p.Type == Table:
		if err := d.checkTable(p); err != nil {
			return err
		}
	case !p.canRepresent(p.Default) || !p.canRepresent(p.Min) || !p.canRepresent(p.Max):
		return fmt.Errorf("%s has a bound that its type %v can't have", name, p.Type)
	case p.Type == Bool && (p.Min != 0 || p.Max != 1):
		return fmt.Errorf("%s is a bool from %d to %d", name, p.Min, p.Max)
	case p.less(p.Default, p.Min) || p.less(p.Max, p.Default):
		return fmt.Errorf("%s has the default %s, which isn't from %s to %s", name, p.format(p.Default), p.format(p.Min), p.format(p.Max))
	}
	d.Parameters = append(d.Parameters, p)
	return nil
}

// canRepresent reports whether the parameter's type can represent the value.
func (p Parameter) canRepresent(n Number) bool {
	bits := 8 * p.Type.Size()
	switch {
	case p.Type == Bool:
		return n <= 1
	case p.Type.isUnsigned():
		return bits == 64 || uint64(n)>>bits == 0
	case p.Type.isSigned():
		return int64(n)<<(64-bits)>>(64-bits) == int64(n)
	case p.Type == Float32:
		return !math.IsNaN(n.Float()) && float64(float32(n.Float())) == n.Float()
	}
	return !math.IsNaN(n.Float())
}

func (p Parameter) less(a, b Number) bool {
	switch {
	case p.Type.isUnsigned() || p.Type == Bool:
		return a < b
	case p.Type.isSigned():
		return int64(a) < int64(b)
	}
	return a.Float() < b.Float()
}

func (d *Description) addField(entry []byte) error {
	var e fieldEntry
	read(entry, &e)
	name, err := text(e.Name[:])
	if err != nil {
		return err
	}
	f := Field{Name: name, Type: Type(e.Type), Array: e.Array != 0, Count: int(e.Count), CountParameter: int(e.CountParameter) - 1,
		Hex: e.Flags&flagHex != 0, BareJSON: e.Flags&flagBareJSON != 0, BareColumn: e.Flags&flagBareColumn != 0,
		MaxBytes: int(e.MaxBytes), MaxPerByte: int(e.PerByte)}
	switch {
	case !goodName(name):
		return fmt.Errorf("name %q", name)
	case !f.Type.isValid() || f.Type == Table || f.Type == Bool:
		return fmt.Errorf("%s has type %d", name, e.Type)
	case f.Array && f.Type == Bytes || !f.Array && (f.Count > 1 || (f.Count == 0) == (f.CountParameter < 0)):
		return fmt.Errorf("%s of type %v has %d elements", name, f.Type, e.Count)
	case (f.Count == 0) == (f.CountParameter < 0) || f.Count > maxNumbers:
		return fmt.Errorf("%s is an array of %d elements", name, e.Count)
	case f.Hex && !f.Type.isUnsigned() && f.Type != Bytes:
		return fmt.Errorf("%s of type %v has hexadecimal digits", name, f.Type)
	case e.MaxBytes > maxStringBytes || e.PerByte > maxPerByte || f.Type != Bytes && (e.MaxBytes != 0 || e.PerByte != 0):
		return fmt.Errorf("%s has at most %d bytes and %d per byte of its record", name, e.MaxBytes, e.PerByte)
	}
	d.Fields = append(d.Fields, f)
	return nil
}

func (d *Description) addReason(entry []byte) error {
	reason, err := text(entry[:reasonBytes])
	if err == nil && reason == "" {
		err = errors.New("it is empty")
	}
	d.Reasons = append(d.Reasons, reason)
	return err
}

// Limits of passes and scratch memory. With them, no size and no number of blocks overflows.
const (
	maxConstantBlocks = 1 << 16
	maxScratch        = 1 << 30
	maxScratchPerRow  = 1 << 20
	maxScratchPerByte = 1 << 10
	faultBytes        = 4 // scratch memory begins with a uint32 for faults of passes
)

// passEntry has the layout of struct millrace_pass.
type passEntry struct {
	Name                                                [nameBytes]byte
	Threads, Constant, PerRow, PerByte, Share, Reserved uint32
}

// scratchEntry has the layout of the scratch memory fields in struct millrace_description.
type scratchEntry struct{ Bytes, PerRow, PerByte uint32 }

func (d *Description) addPass(entry []byte) error {
	var e passEntry
	read(entry, &e)
	name, err := text(e.Name[:])
	if err != nil {
		return err
	}
	blocks := uint64(e.Constant) + uint64(e.PerRow) + uint64(e.PerByte)
	switch {
	case !goodName(name):
		return fmt.Errorf("name %q", name)
	case e.Threads == 0 || e.Threads > maxThreads || e.Threads%warp != 0:
		return fmt.Errorf("%s has %d threads per block", name, e.Threads)
	case e.Share == 0 || blocks == 0 || e.Constant > maxConstantBlocks || blocks-uint64(e.Constant) > uint64(e.Share):
		return fmt.Errorf("%s has %d blocks, %d per record and %d per byte, divided by %d", name, e.Constant, e.PerRow, e.PerByte, e.Share)
	}
	for _, other := range d.Passes {
		if other.Name == name {
			return fmt.Errorf("two passes %s", name)
		}
	}
	d.Passes = append(d.Passes, Pass{Name: name, Threads: int(e.Threads), Constant: int(e.Constant), PerRow: int(e.PerRow),
		PerByte: int(e.PerByte), Share: int(e.Share)})
	return nil
}

func (d *Description) setScratch(e scratchEntry) error {
	switch {
	case len(d.Passes) == 0 && e != (scratchEntry{}):
		return errors.New("scratch memory without passes")
	case len(d.Passes) > 0 && e.Bytes < faultBytes:
		return fmt.Errorf("scratch memory of %d bytes: passes need %d", e.Bytes, faultBytes)
	case e.Bytes > maxScratch || e.PerRow > maxScratchPerRow || e.PerByte > maxScratchPerByte:
		return fmt.Errorf("scratch memory of %d bytes, %d per record and %d per byte", e.Bytes, e.PerRow, e.PerByte)
	}
	d.Scratch = Scratch{int(e.Bytes), int(e.PerRow), int(e.PerByte)}
	return nil
}

// check checks the rules that concern several entries.
func (d *Description) check() error {
	if len(d.Fields) == 0 {
		return errors.New("no result field")
	}
	names := map[string]bool{}
	shown := false
	for _, p := range d.Parameters {
		if names[p.Name] {
			return fmt.Errorf("two parameters %s", p.Name)
		}
		names[p.Name] = true
		shown = shown || p.Shown
	}
	members := map[string]bool{}
	for _, p := range d.Parameters {
		members[p.Name] = p.Shown
	}
	for i, f := range d.Fields {
		if members[f.Name] {
			return fmt.Errorf("two members %s in the JSON result", f.Name)
		}
		members[f.Name] = true
		if err := d.checkCount(f, i); err != nil {
			return err
		}
		if (f.BareJSON || f.BareColumn) && len(d.Fields) > 1 || f.BareJSON && shown {
			return fmt.Errorf("%s stands alone, but it isn't alone", f.Name)
		}
	}
	return nil
}

// checkCount checks the parameter that holds the number of elements of field i. A field with a constant number has no such parameter.
func (d *Description) checkCount(f Field, i int) error {
	if f.CountParameter < 0 {
		return nil
	}
	if f.CountParameter >= len(d.Parameters) {
		return fmt.Errorf("%s has as many elements as parameter number %d of %d", f.Name, f.CountParameter+1, len(d.Parameters))
	}
	p := d.Parameters[f.CountParameter]
	if !f.Array {
		if p.Type != Bool || i == 0 {
			return fmt.Errorf("%s depends on %s of type %v: an optional field depends on a bool, and isn't the first field", f.Name, p.Name, p.Type)
		}
		return nil
	}
	if !p.Type.isUnsigned() || p.Min < 1 || p.Max > maxNumbers {
		return fmt.Errorf("%s has as many elements as %s: it must be an unsigned integer from 1 to at most %d", f.Name, p.Name, maxNumbers)
	}
	return nil
}

// read decodes a structure from data into to. data must contain the whole structure.
func read(data []byte, to any) {
	if _, err := binary.Decode(data, binary.LittleEndian, to); err != nil {
		panic(fmt.Sprintf("compiled: %v", err)) // the caller has checked the length
	}
}

// text returns the text before the first zero byte. The text must consist of printable ASCII characters.
func text(field []byte) (string, error) {
	s, _, ended := bytes.Cut(field, []byte{0})
	for _, c := range s {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("text %q isn't printable", s)
		}
	}
	if !ended {
		return "", fmt.Errorf("text %q doesn't end", s)
	}
	return string(s), nil
}

// taken lists the names that results and filters use themselves: keys of JSON results, columns of Arrow results, and variables of filters.
var taken = []string{"bytes", "error", "fields", "record", "status"}

// CheckName returns an error if name isn't permitted for a user's operator.
func CheckName(name string) error {
	for _, d := range BuiltIn() {
		if d.Name == name {
			return fmt.Errorf("%q is the name of a built-in operator: choose another", name)
		}
	}
	if slices.Contains(taken, name) {
		return fmt.Errorf("%q is a name that results and filters use themselves: choose another", name)
	}
	if !goodName(name) || len(name) >= nameBytes {
		return fmt.Errorf("%q can't be the name of an operator: begin with a lower-case letter, continue with those, digits and underscores, end with a letter or digit, and use at most %d characters",
			name, nameBytes-1)
	}
	return nil
}

// goodName reports whether a name consists of lower-case letters, digits and underscores, begins with a letter, and doesn't end with
// an underscore.
func goodName(name string) bool {
	for i, c := range []byte(name) {
		if letter := c >= 'a' && c <= 'z'; !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && name[len(name)-1] != '_'
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }
