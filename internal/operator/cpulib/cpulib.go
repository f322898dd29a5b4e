// Package cpulib runs users' operators on the CPU. A C++ compiler builds each operator as a library, from a source file that includes
// millrace/operator.cuh (docs/adr/0040-operators-of-your-own.md).
//
// A Library is a device.HostKernel, so the host and sim devices run it like a built-in operator. Start reading with Open, then Kernel.
// The code isn't sandboxed: it has the permissions of the process, and a crash in it ends the process.
package cpulib

import (
	"bytes"
	"fmt"
	"path/filepath"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// Library is an operator that was compiled for the CPU. It is immutable and safe for concurrent use. It is never unloaded.
type Library struct {
	path        string
	description *compiled.Description
	code        code
}

// runSymbol is the name of the function that computes records.
const runSymbol = "millrace_operator_run"

// Open reads the description of the library at path and then loads its code. If the library isn't an operator or needs a newer
// contract, Open returns an error without running any of its code.
func Open(path string) (*Library, error) {
	d, err := compiled.ReadFile(path)
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(path) // the loader searches its folders for a name without a slash
	if err != nil {
		return nil, err
	}
	var passes []string
	for _, p := range d.Passes {
		passes = append(passes, compiled.PassSymbol+p.Name)
	}
	loaded, err := load(absolute, passes)
	if err != nil {
		return nil, fmt.Errorf("operator %q can't be loaded: %w", d.Name, err)
	}
	return &Library{path: path, description: d, code: loaded}, nil
}

// Description returns the operator's description.
func (l *Library) Description() *compiled.Description { return l.description }

// Name implements device.HostKernel.
func (l *Library) Name() string { return l.description.Name }

// Bind implements device.HostKernel.
func (l *Library) Bind(params []byte) (device.BoundHostKernel, error) {
	o, err := l.description.BindBlock(params)
	if err != nil {
		return nil, device.Errorf("bind "+l.Name(), "", device.ErrInvalid, "%v", err)
	}
	return &Kernel{operator: o, code: l.code, block: o.Block(), tables: o.Tables()}, nil
}

// Kernel is an operator with its parameters. It implements device.BoundHostKernel. The result of a batch has the layout of
// compiled.Operator.Layout: records, statuses and byte strings.
type Kernel struct {
	operator *compiled.Operator
	code     code
	block    []byte // without the tables
	tables   []byte // contents of the tables
}

// Operator returns the operator with its parameters.
func (k *Kernel) Operator() *compiled.Operator { return k.operator }

// Needs implements device.BoundHostKernel.
func (k *Kernel) Needs(s device.Shape) device.Needs {
	return device.Needs{Scratch: k.operator.Scratch(s.Rows, s.Bytes), Result: k.operator.Layout(s.Rows, s.Bytes).End}
}

// batch is a batch in the memory of the process.
type batch struct {
	rows                       []byte
	offsets                    []uint32
	stride                     int
	records, statuses, strings []byte
	scratch                    []byte
	block, tables              []byte
}

// pieceUnits is the amount of work that one goroutine processes at a time. A record counts as its number of bytes plus recordUnits.
const (
	pieceUnits  = 64 << 10
	recordUnits = 64
)

// scratchAlign is the alignment in bytes that atomic functions require of scratch memory.
const scratchAlign = 8

// Run implements device.BoundHostKernel. Scratch memory must be aligned to 8 bytes. Like a GPU, Run doesn't check the code's output.
// The caller checks it with Check, Refusal and Overlong of compiled.Operator.
func (k *Kernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	if len(offsets) == 0 || int(offsets[len(offsets)-1]) != len(rows) {
		return fmt.Errorf("operator %s: offsets that don't end with the %d bytes of the records", k.operator.Name(), len(rows))
	}
	n := len(offsets) - 1
	l := k.operator.Layout(n, len(rows))
	if len(result) < l.End {
		return fmt.Errorf("operator %s: %d bytes for results: it takes %d", k.operator.Name(), len(result), l.End)
	}
	size := k.operator.Scratch(n, len(rows))
	if len(scratch) < size || size > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(scratch)))%scratchAlign != 0 {
		return fmt.Errorf("operator %s: %d bytes of scratch memory: it takes %d, aligned to %d", k.operator.Name(), len(scratch), size, scratchAlign)
	}
	b := &batch{rows: rows, offsets: offsets, stride: k.operator.Stride(), records: result[:l.Status], statuses: result[l.Status:l.Strings],
		strings: result[l.Strings:l.End], scratch: scratch[:size], block: k.block, tables: k.tables}
	clear(result[n*b.stride : l.Status]) // no byte of the result may depend on earlier memory contents
	clear(result[l.Status+n : l.Strings])
	k.runPasses(b, parallel)
	pieces := min(n, (len(rows)+recordUnits*n+pieceUnits-1)/pieceUnits)
	parallel(pieces, func(i int) { k.code.call(b, i*n/pieces, (i+1)*n/pieces) })
	return nil
}

// runPasses clears the scratch memory and runs the passes, each on all cores. Like a GPU, it runs no passes for an empty batch.
func (k *Kernel) runPasses(b *batch, parallel device.Parallel) {
	n := len(b.offsets) - 1
	if n == 0 {
		return
	}
	clear(b.scratch)
	pieces := max(1, (len(b.rows)+recordUnits*n)/pieceUnits)
	for i, p := range k.operator.Description().Passes {
		blocks := p.Blocks(n, len(b.rows))
		pieces := min(blocks, pieces)
		parallel(pieces, func(j int) { k.code.callPass(i, b, blocks, j*blocks/pieces, (j+1)*blocks/pieces) })
	}
}

// Equal reports whether a and b, two results of a batch with the given offsets, are equal. It ignores the unused bytes of byte
// string slots.
func (k *Kernel) Equal(offsets []uint32, a, b []byte) bool {
	n := len(offsets) - 1
	l := k.operator.Layout(n, int(offsets[n]))
	if !bytes.Equal(a[:l.Strings], b[:l.Strings]) {
		return false
	}
	for i := range n {
		if !bytes.Equal(k.operator.AppendStrings(nil, offsets, a, i), k.operator.AppendStrings(nil, offsets, b, i)) {
			return false
		}
	}
	return true
}
