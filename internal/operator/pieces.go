package operator

import (
	"errors"
	"fmt"
	"sort"

	"millrace/internal/device"
)

// batch is a ragged batch cut into pieces of equal size, so that cores share it evenly however its bytes are
// spread over rows: one long row is worked on by many cores.
//
// Pieces are measured in units. A row takes one unit for its beginning and one for each of its bytes. So an
// empty row has a place too, and every row begins in exactly one piece, which writes the row's record. A
// piece whose first part goes on with a row that an earlier piece began puts that part's record aside, to be
// merged when all pieces are done.
type batch struct {
	rows       []byte
	offsets    []uint32
	pieceUnits int
}

// part is the stretch of one row that lies in one piece.
type part struct {
	row       int
	low, high int  // rows[low:high]; may be empty
	begins    bool // it starts with the row's beginning
	limit     int  // the unit at which the piece ends
}

// prepare cuts a kernel's batch into pieces and checks what the kernel was given. The error wraps
// device.ErrInvalid.
func prepare(name string, k device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, pieceUnits int) (batch, error) {
	b := batch{rows, offsets, pieceUnits}
	err := b.checkOffsets()
	if err == nil {
		err = checkRoom(k.Needs(b.shape()), scratch, result)
	}
	if err != nil {
		return batch{}, device.Errorf("run "+name, "", device.ErrInvalid, "%v", err)
	}
	return b, nil
}

// checkOffsets wants at least one offset, none below the one before it, and none behind the rows' end.
func (b batch) checkOffsets() error {
	if len(b.offsets) == 0 {
		return errors.New("the offsets table is empty: give one entry more than there are rows")
	}
	for i := 1; i < len(b.offsets); i++ {
		if b.offsets[i] < b.offsets[i-1] {
			return fmt.Errorf("offsets[%d] is %d, below offsets[%d], which is %d", i, b.offsets[i], i-1, b.offsets[i-1])
		}
	}
	if end := b.offsets[len(b.offsets)-1]; int64(end) > int64(len(b.rows)) {
		return fmt.Errorf("the last offset is %d, behind the end of the rows' %d bytes", end, len(b.rows))
	}
	return nil
}

func checkRoom(n device.Needs, scratch, result []byte) error {
	if len(scratch) < n.Scratch {
		return fmt.Errorf("scratch has %d bytes: this batch needs %d", len(scratch), n.Scratch)
	}
	if len(result) < n.Result {
		return fmt.Errorf("result has %d bytes: this batch needs %d", len(result), n.Result)
	}
	return nil
}

// shape is what Needs is asked with. It does not look for the longest row, which no host kernel asks for.
func (b batch) shape() device.Shape {
	last := len(b.offsets) - 1
	return device.Shape{Rows: last, Bytes: int(b.offsets[last] - b.offsets[0])}
}

func pieceCount(rows, bytes, pieceUnits int) int {
	return (rows + bytes + pieceUnits - 1) / pieceUnits
}

func (b batch) pieces() int {
	s := b.shape()
	return pieceCount(s.Rows, s.Bytes, b.pieceUnits)
}

// beginning is the unit at which a row begins, and for row == number of rows the end of all.
func (b batch) beginning(row int) int {
	return int(b.offsets[row]-b.offsets[0]) + row
}

// first is the first part of a piece; false where there is no such piece.
func (b batch) first(piece int) (part, bool) {
	rows := len(b.offsets) - 1
	unit := piece * b.pieceUnits
	limit := min(unit+b.pieceUnits, b.beginning(rows))
	if unit >= limit {
		return part{}, false
	}
	row := sort.Search(rows, func(i int) bool { return b.beginning(i+1) > unit })
	return b.partAt(row, unit, limit), true
}

// next is the part behind p in the same piece; false where p is the last.
func (b batch) next(p part) (part, bool) {
	unit := b.beginning(p.row + 1)
	if unit >= p.limit {
		return part{}, false
	}
	return b.partAt(p.row+1, unit, p.limit), true
}

// partAt is the part of row from unit on, which lies in the row, to limit or the row's end.
func (b batch) partAt(row, unit, limit int) part {
	var (
		start = int(b.offsets[row])
		end   = int(b.offsets[row+1])
		into  = unit - b.beginning(row)      // 0 at the row's beginning, then 1 for its first byte
		until = limit - b.beginning(row) - 1 // bytes of the row before limit
	)
	return part{
		row:    row,
		low:    start + max(into-1, 0),
		high:   min(start+until, end),
		begins: into == 0,
		limit:  limit,
	}
}
