package compiled

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// describe encodes a description with an operator name, a parameter, a field and a reason. change may modify it first.
func describe(t testing.TB, change func(h *head, p *parameterEntry, f *fieldEntry, reason *[reasonBytes]byte)) []byte {
	t.Helper()
	h := head{Size: descriptionBytes, Contract: 1, Version: 3, Form: uint32(Thread), Threads: 64, Teams: 64, ParameterBytes: 4}
	copy(h.Magic[:], magic)
	copy(h.Name[:], "sample")
	h.Parameters = entries{1, parameterBytes, descriptionBytes}
	h.Fields = entries{1, fieldBytes, descriptionBytes + parameterBytes}
	h.Reasons = entries{1, reasonBytes, descriptionBytes + parameterBytes + fieldBytes}
	h.Passes = entries{0, passBytes, descriptionBytes + parameterBytes + fieldBytes + reasonBytes}
	h.Bytes = descriptionBytes + parameterBytes + fieldBytes + reasonBytes
	p := parameterEntry{Type: uint32(Uint32), Preset: 2, Min: 1, Max: 3}
	copy(p.Name[:], "n")
	f := fieldEntry{Type: uint32(Uint16), Count: 1}
	copy(f.Name[:], "value")
	var reason [reasonBytes]byte
	copy(reason[:], "because")
	change(&h, &p, &f, &reason)
	var data []byte
	for _, part := range []any{&h, &p, &f, &reason} {
		var err error
		if data, err = binary.Append(data, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// TestDescriptionOfHostCode: the description of host code has no thread counts.
func TestDescriptionOfHostCode(t *testing.T) {
	data := describe(t, func(h *head, _ *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) {
		h.Form, h.Threads, h.Teams = uint32(Library), 0, 0
	})
	if d, err := Decode(data); err != nil || d.Form != Library || d.Form.String() != "host code" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDamagedDescriptionsAreRefused(t *testing.T) {
	type reason = [reasonBytes]byte
	for name, test := range map[string]struct {
		change func(h *head, p *parameterEntry, f *fieldEntry, r *reason)
		want   string
	}{
		"magic": {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Magic[0] = 'm' }, "not the description"},
		"name":  {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Name[0] = 'S' }, "the operator's name"},
		"endless name": {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) {
			h.Name = [nameBytes]byte([]byte(strings.Repeat("a", nameBytes)))
		}, "the operator's name"},
		"size":              {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Size = 8 }, "follow its first 8"},
		"too long":          {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Bytes += 8 }, "it has"},
		"form":              {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Form = uint32(Warp) }, "form 2"},
		"threads":           {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Threads = 0 }, "0 threads"},
		"no teams":          {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Teams = 0 }, "for 0 records"},
		"version":           {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Version = 0 }, "version 0"},
		"parameters beyond": {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Parameters.At = 1 << 31 }, "parameters of 72 bytes"},
		"many parameters":   {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Parameters.Count = 1 << 30 }, "parameters of 72 bytes"},
		"small fields":      {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Fields.Size = 4 }, "fields of 4 bytes"},
		"no field":          {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Fields.Count = 0 }, "no result field"},
		"block":             {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.ParameterBytes = 8 }, "parameter block of 8"},
		"parameter's type":  {func(_ *head, p *parameterEntry, _ *fieldEntry, _ *reason) { p.Type = uint32(Bytes) }, "n has type 11"},
		"parameter's place": {func(_ *head, p *parameterEntry, _ *fieldEntry, _ *reason) { p.At = 1 << 31 }, "at byte 2147483648"},
		"default":           {func(_ *head, p *parameterEntry, _ *fieldEntry, _ *reason) { p.Preset = 4 }, "default 4"},
		"unrepresentable":   {func(_ *head, p *parameterEntry, _ *fieldEntry, _ *reason) { p.Max = 1 << 32 }, "can't have"},
		"parameter's name":  {func(_ *head, p *parameterEntry, _ *fieldEntry, _ *reason) { p.Name[1] = '_' }, `name "n_"`},
		"field's type":      {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Type = 14 }, "type 14"},
		"a table as field":  {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Type = uint32(Table) }, "type 12"},
		"a bool as field":   {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Type = uint32(Bool) }, "type 13"},
		"bounds of a bool": {func(h *head, p *parameterEntry, _ *fieldEntry, _ *reason) {
			h.ParameterBytes, p.Type, p.Preset, p.Min, p.Max = 1, uint32(Bool), 1, 1, 1
		}, "n is a bool from 1 to 1"},
		"a bool of 2": {func(h *head, p *parameterEntry, _ *fieldEntry, _ *reason) {
			h.ParameterBytes, p.Type, p.Min, p.Max = 1, uint32(Bool), 0, 1
		}, "can't have"},
		"optional first field": {func(h *head, p *parameterEntry, f *fieldEntry, _ *reason) {
			*p = parameterEntry{Name: p.Name, Type: uint32(Bool), Max: 1}
			h.ParameterBytes, f.Count, f.CountParameter = 1, 0, 1
		}, "an optional field depends on a bool, and isn't the first field"},
		"field of a number": {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Count, f.CountParameter = 0, 1 }, "value depends on n of type uint32"},
		"array of a bool": {func(h *head, p *parameterEntry, f *fieldEntry, _ *reason) {
			*p = parameterEntry{Name: p.Name, Type: uint32(Bool), Max: 1}
			h.ParameterBytes, f.Array, f.Count, f.CountParameter = 1, 1, 0, 1
		}, "it must be an unsigned integer from 1"},
		"optional and not": {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.CountParameter = 1 }, "value of type uint16 has 1 elements"},
		"table's default": {func(h *head, p *parameterEntry, _ *fieldEntry, _ *reason) {
			h.ParameterBytes, p.Type = 8, uint32(Table)
		}, "n is a table with a default"},
		"huge table": {func(h *head, p *parameterEntry, _ *fieldEntry, _ *reason) {
			h.ParameterBytes, p.Type, p.Preset, p.Max = 8, uint32(Table), 0, maxTableBytes+1
		}, "n is a table with a default, or of 1 to 16777217 bytes"},
		"scratch without passes": {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Scratch.PerRow = 4 }, "scratch memory without passes"},
		"no elements":            {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Array, f.Count = 1, 0 }, "array of 0"},
		"many elements":          {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Array, f.Count = 1, 1<<31 }, "array of"},
		"two sizes":              {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Array, f.CountParameter = 1, 1 }, "array of 1"},
		"host code's threads":    {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Form = uint32(Library) }, "form 5 with 64 threads"},
		"a form's number":        {func(h *head, _ *parameterEntry, _ *fieldEntry, _ *reason) { h.Form, h.Threads, h.Teams = 99, 0, 0 }, "form 99"},
		"which parameter": {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) {
			f.Array, f.Count, f.CountParameter = 1, 0, 2
		}, "parameter number 2 of 1"},
		"least size": {func(_ *head, p *parameterEntry, f *fieldEntry, _ *reason) {
			p.Min, f.Array, f.Count, f.CountParameter = 0, 1, 0, 1
		}, "an unsigned integer from 1"},
		"hex":         {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Type, f.Flags = uint32(Float32), flagHex }, "hexadecimal"},
		"bytes":       {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.Type, f.MaxBytes = uint32(Bytes), 1<<31 }, "at most 2147483648 bytes"},
		"not bytes":   {func(_ *head, _ *parameterEntry, f *fieldEntry, _ *reason) { f.PerByte = 1 }, "1 per byte"},
		"bare, shown": {func(_ *head, p *parameterEntry, f *fieldEntry, _ *reason) { p.Flags, f.Flags = flagShown, flagBareJSON }, "stands alone"},
		"two members": {func(_ *head, p *parameterEntry, f *fieldEntry, _ *reason) { p.Flags, f.Name = flagShown, p.Name }, "two members n"},
		"reason":      {func(_ *head, _ *parameterEntry, _ *fieldEntry, r *reason) { r[0] = 0 }, "it is empty"},
		"bad reason":  {func(_ *head, _ *parameterEntry, _ *fieldEntry, r *reason) { r[2] = '\n' }, "printable"},
	} {
		if _, err := Decode(describe(t, test.change)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, test.want)
		}
	}
}

func TestGoodDescriptionIsDecoded(t *testing.T) {
	d, err := Decode(describe(t, func(*head, *parameterEntry, *fieldEntry, *[reasonBytes]byte) {}))
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "sample" || d.Version != 3 || d.Parameters[0].Max != 3 || d.Fields[0].Type != Uint16 || d.Reasons[0] != "because" {
		t.Errorf("%+v", d)
	}
}

// TestLongerEntriesAreRead: later contracts append fields to the structures, and this version ignores them.
func TestLongerEntriesAreRead(t *testing.T) {
	data := describe(t, func(h *head, _ *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) {
		h.Parameters.Size += fieldBytes // treats the field's entry as an extension of the parameter's
	})
	if d, err := Decode(data); err != nil || d.Parameters[0].Name != "n" || d.Fields[0].Name != "value" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestNewerContractIsRefusedWithBothVersions(t *testing.T) {
	_, err := Decode(describe(t, func(h *head, _ *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) { h.Contract = 2 }))
	var version *VersionError
	if !errors.As(err, &version) || version.Needs != 2 || version.Operator != "sample" {
		t.Fatalf("error %v", err)
	}
	for _, text := range []string{"sample", "version 2", "version 1"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q doesn't contain %q", err, text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good := describe(f, func(*head, *parameterEntry, *fieldEntry, *[reasonBytes]byte) {})
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(magic))
	f.Add(describePasses(f, func(*head, *passEntry, *passEntry) {}))
	f.Add(describe(f, func(h *head, p *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) {
		h.ParameterBytes, p.Type, p.Preset = 8, uint32(Table), 0
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data)
		if err != nil {
			return
		}
		if len(d.Fields) == 0 || !goodName(d.Name) {
			t.Errorf("accepted %+v", d)
		}
		op, err := d.Bind("")
		if d.tablesAt() >= 0 {
			if err == nil || !strings.Contains(err.Error(), "has no default") {
				t.Fatalf("a table has a default: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("the defaults are refused: %v", err)
		}
		if op.Stride() <= 0 || len(op.Params()) != d.blockBytes() {
			t.Errorf("stride %d, block of %d bytes", op.Stride(), len(op.Params()))
		}
		if again, err := d.BindBlock(op.Params()); err != nil || again.String() != op.String() {
			t.Errorf("the block of %v is read as %v, %v", op, again, err)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if d, err := Read(file); err == nil && len(d.Fields) == 0 {
			t.Error("an operator without results")
		}
	})
}
