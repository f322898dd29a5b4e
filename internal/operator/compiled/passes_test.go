package compiled

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// describePasses encodes a description with two passes. change may modify it first.
func describePasses(t testing.TB, change func(h *head, a, b *passEntry)) []byte {
	t.Helper()
	a := passEntry{Threads: 64, PerByte: 1, Share: 4096}
	b := passEntry{Threads: 1024, Constant: 3, PerRow: 1, PerByte: 2, Share: 3}
	copy(a.Name[:], "find")
	copy(b.Name[:], "join")
	data := describe(t, func(h *head, _ *parameterEntry, _ *fieldEntry, _ *[reasonBytes]byte) {
		h.Passes.Count, h.Bytes, h.Scratch = 2, h.Bytes+2*passBytes, scratchEntry{Bytes: 128, PerRow: 8, PerByte: 2}
		change(h, &a, &b)
	})
	for _, p := range []*passEntry{&a, &b} {
		var err error
		if data, err = binary.Append(data, binary.LittleEndian, p); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func TestPassesAreDecoded(t *testing.T) {
	d, err := Decode(describePasses(t, func(*head, *passEntry, *passEntry) {}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Pass{{Name: "find", Threads: 64, PerByte: 1, Share: 4096}, {Name: "join", Threads: 1024, Constant: 3, PerRow: 1, PerByte: 2, Share: 3}}
	if !reflect.DeepEqual(d.Passes, want) || d.Scratch != (Scratch{128, 8, 2}) {
		t.Errorf("%+v, scratch %+v", d.Passes, d.Scratch)
	}
	for _, c := range []struct{ rows, bytes, find, join, scratch int }{
		{1, 0, 0, 2, 136}, {1, 1, 1, 2, 138}, {2, 4096, 1, 2733, 128 + 16 + 8192}, {9, 4097, 2, 2736, 128 + 72 + 8194},
	} {
		o, err := d.Bind("")
		if err != nil {
			t.Fatal(err)
		}
		if find, join, scratch := d.Passes[0].Blocks(c.rows, c.bytes), d.Passes[1].Blocks(c.rows, c.bytes), o.Scratch(c.rows, c.bytes); find != c.find || join != c.join || scratch != c.scratch {
			t.Errorf("%d rows, %d bytes: %d and %d blocks, %d bytes of scratch memory; want %+v", c.rows, c.bytes, find, join, scratch, c)
		}
	}
}

func TestDamagedPassesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(h *head, a, b *passEntry)
		want   string
	}{
		"many":            {func(h *head, _, _ *passEntry) { h.Passes.Count = 9 }, "9 passes of 56 bytes"},
		"beyond":          {func(h *head, _, _ *passEntry) { h.Passes.At++ }, "2 passes of 56 bytes"},
		"small":           {func(h *head, _, _ *passEntry) { h.Passes.Size = 55 }, "2 passes of 55 bytes"},
		"name":            {func(_ *head, a, _ *passEntry) { a.Name[0] = 'F' }, `name "Find"`},
		"twice":           {func(_ *head, a, b *passEntry) { b.Name = a.Name }, "two passes find"},
		"no threads":      {func(_ *head, a, _ *passEntry) { a.Threads = 0 }, "find has 0 threads"},
		"odd threads":     {func(_ *head, a, _ *passEntry) { a.Threads = 65 }, "find has 65 threads"},
		"many threads":    {func(_ *head, _, b *passEntry) { b.Threads = 1056 }, "join has 1056 threads"},
		"no share":        {func(_ *head, a, _ *passEntry) { a.Share = 0 }, "divided by 0"},
		"no blocks":       {func(_ *head, a, _ *passEntry) { a.PerByte = 0 }, "find has 0 blocks"},
		"many blocks":     {func(_ *head, _, b *passEntry) { b.Constant = maxConstantBlocks + 1 }, "join has 65537 blocks"},
		"blocks per byte": {func(_ *head, _, b *passEntry) { b.Share = 2 }, "1 per record and 2 per byte, divided by 2"},
		"blocks overflow": {func(_ *head, _, b *passEntry) { b.PerRow, b.PerByte = 1<<31, 1<<31 }, "2147483648 per byte"},
		"little scratch":  {func(h *head, _, _ *passEntry) { h.Scratch.Bytes = 3 }, "passes need 4"},
		"much scratch":    {func(h *head, _, _ *passEntry) { h.Scratch.Bytes = maxScratch + 1 }, "scratch memory of 1073741825 bytes"},
		"much per record": {func(h *head, _, _ *passEntry) { h.Scratch.PerRow = maxScratchPerRow + 1 }, "1048577 per record"},
		"much per byte":   {func(h *head, _, _ *passEntry) { h.Scratch.PerByte = maxScratchPerByte + 1 }, "1025 per byte"},
	} {
		if _, err := Decode(describePasses(t, test.change)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, test.want)
		}
	}
}
