package operator

import (
	"errors"
	"fmt"
	"sort"

	"millrace/internal/device"
)

// batch is a ragged batch that is divided into pieces of equal size. Cores share the work evenly for any lengths of rows. Many
// cores can work on one long row.
//
// Pieces are measured in units. A row has one unit for its beginning and one for each byte. Every row, even an empty
// one, begins in exactly one piece, which writes the row's record. If the first part of a piece continues a row from an
// earlier piece, the piece stores that part's record in scratch. The records are merged when all pieces are done.
type batch struct {
	rows       []byte
	offsets    []uint32
	pieceUnits int
}

// part is the portion of one row that lies in one piece.
type part struct {
	row       int
	low, high int  // rows[low:high]; may be empty
	begins    bool // whether the part includes the row's beginning
	limit     int  // unit at which the piece ends
}

// prepare checks the arguments of a launch of kernel k, and returns the batch. name is the operator's name, for errors.
// The error wraps device.ErrInvalid.
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

// checkOffsets checks that there is at least one offset, that offsets don't decrease, and that none exceeds the length
// of the rows.
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

// shape returns the shape for Needs. It leaves Longest at 0, because no host kernel uses it.
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

// beginning returns the first unit of a row. If row is the number of rows, it returns the total number of units.
func (b batch) beginning(row int) int {
	return int(b.offsets[row]-b.offsets[0]) + row
}

// first returns the first part of a piece, or false if the piece doesn't exist.
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

// next returns the part after p in the same piece, or false if p is the last part.
func (b batch) next(p part) (part, bool) {
	unit := b.beginning(p.row + 1)
	if unit >= p.limit {
		return part{}, false
	}
	return b.partAt(p.row+1, unit, p.limit), true
}

// partAt returns the part of row that starts at unit and ends at limit or at the row's end. unit must be in the row.
func (b batch) partAt(row, unit, limit int) part {
	var (
		start = int(b.offsets[row])
		end   = int(b.offsets[row+1])
		into  = unit - b.beginning(row)      // 0 at the row's beginning, 1 at its first byte
		until = limit - b.beginning(row) - 1 // number of the row's bytes before limit
	)
	return part{
		row:    row,
		low:    start + max(into-1, 0),
		high:   min(start+until, end),
		begins: into == 0,
		limit:  limit,
	}
}
