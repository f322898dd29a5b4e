package cuda

import (
	"encoding/binary"

	"millrace/internal/device"
)

// NearDuplicateParameters are the size of an index of near-duplicates. Package neardup defines bands and generations.
type NearDuplicateParameters struct {
	Bands   int // keys of a record, 1 to 64
	Records int // records of a generation, 1 to 2^30
	Batch   int // maximum number of records in a batch, from 1 to 2^20 and at most Records
}

// NearDuplicateBatch is a batch of records. The memory is the device's own, or pinned memory by device.Mapper, which the
// device reads and writes in place. It must remain valid until the stream has passed the call.
type NearDuplicateBatch struct {
	Records   int           // at least 1
	Keys      device.Memory // little-endian uint64: by record, then by band
	Positions device.Memory // 16 bytes per record: sequence and number, ascending from batch to batch
	Result    device.Memory // NearDuplicateParameters.ResultBytes, aligned to 16
}

// NearDuplicateRows are consecutive records of a log, of one generation. The memory is as in NearDuplicateBatch.
type NearDuplicateRows struct {
	First         int           // number of the first record in its generation. It follows the last one, or is 0 after a full generation.
	Records       int           // 1 to 2^20
	Labels        device.Memory // position of each record's label
	Carries       int           // sum of the records' NearDuplicate.Carries
	Carried       int           // number of labels that they carry over
	FirstCarried  int           // labels that the records of the generation before them carry over
	CarriedLabels device.Memory // position of each
	Keys          int           // number of inserted keys
	Inserted      device.Memory // the keys
	// KeyLabels has a uint32 per key: the number of its carried label in the generation, or NearDuplicateParameters.Records
	// plus the number of its record in the generation.
	KeyLabels device.Memory
	// Conflicts is a uint64. The device adds the number of keys that contradict the index. If it isn't 0 afterwards, the
	// index must not be used.
	Conflicts device.Memory
}

// NearDuplicatePosition identifies a record, as neardup.Position does.
type NearDuplicatePosition struct{ Sequence, Record uint64 }

// NearDuplicate is the result of one record.
type NearDuplicate struct {
	Label    NearDuplicatePosition   // the least label of its hits; its own position if it has none
	Hits     int                     // number of keys that were there
	Also     []NearDuplicatePosition // the other labels of its hits, in ascending order
	Inserted uint64                  // bands of the keys that it inserted
	Carries  int                     // number of different labels of its copied keys
	// Relabeled reports whether its copied keys have its own label, because the generation can't carry theirs. Carried is
	// then empty.
	Relabeled bool
	Carried   []NearDuplicateCarry
}

// NearDuplicateCarry is a label that a record carried over from the old generation, with the bands of the copied keys.
type NearDuplicateCarry struct {
	Label NearDuplicatePosition
	Bands uint64
}

// Sizes of a result's parts in bytes, as in millrace.h.
const (
	headerBytes   = 16
	rowBytes      = 32
	positionBytes = 16
	carryBytes    = 24
)

// alsoBytes returns the size of a record's first list, and listBytes that of both lists.
func (p NearDuplicateParameters) alsoBytes() int { return (p.Bands - 1) * positionBytes }
func (p NearDuplicateParameters) listBytes() int {
	return p.alsoBytes() + (p.Bands*carryBytes+15)/16*16
}

// ResultBytes returns the size of the result of a batch.
func (p NearDuplicateParameters) ResultBytes(records int) int {
	return headerBytes + records*(rowBytes+p.listBytes())
}

// Header returns the beginning of a batch's result: the number of labels that the records of the last record's generation
// would carry over so far if there were room, and the number of keys so far that weren't of their band. Such keys are a bug
// in the caller.
func (p NearDuplicateParameters) Header(result []byte) (carried, wrong uint64) {
	return binary.LittleEndian.Uint64(result), binary.LittleEndian.Uint64(result[8:])
}

// Read returns record i of a batch's result.
func (p NearDuplicateParameters) Read(result []byte, records, i int) (n NearDuplicate) {
	le := binary.LittleEndian
	row := result[headerBytes+i*rowBytes:]
	lists := result[headerBytes+records*rowBytes+i*p.listBytes():]
	also, carried := lists[:p.alsoBytes()], lists[p.alsoBytes():p.listBytes()]
	n.Label, n.Inserted = readPosition(row), le.Uint64(row[16:])
	n.Hits, n.Carries, n.Relabeled = int(row[24]), int(row[26]), row[27] != 0
	for range row[25] {
		n.Also, also = append(n.Also, readPosition(also)), also[positionBytes:]
	}
	if n.Relabeled {
		return n
	}
	for range n.Carries {
		n.Carried = append(n.Carried, NearDuplicateCarry{readPosition(carried), le.Uint64(carried[positionBytes:])})
		carried = carried[carryBytes:]
	}
	return n
}

func readPosition(b []byte) NearDuplicatePosition {
	return NearDuplicatePosition{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}
