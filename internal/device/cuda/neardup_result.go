package cuda

import (
	"encoding/binary"

	"millrace/internal/device"
	"millrace/internal/operator/neardup"
)

// NearDuplicateParameters sets the size of an index of near-duplicates. Package neardup defines bands and generations.
type NearDuplicateParameters struct {
	Bands   int // keys per record, 1 to 64
	Records int // records per generation, 1 to 2^30
	Batch   int // maximum number of records in a batch, from 1 to 2^20 and at most Records
}

// NearDuplicateBatch is a batch of records. Its memory is device memory, or pinned memory that device.Mapper has
// mapped. The memory must stay valid until the stream has completed the call.
type NearDuplicateBatch struct {
	Records   int           // number of records, at least 1
	Keys      device.Memory // little-endian uint64, ordered by record and then by band
	Positions device.Memory // 16 bytes per record: sequence and number, ascending from batch to batch
	Result    device.Memory // NearDuplicateParameters.ResultBytes bytes, aligned to 16
}

// NearDuplicateRows holds consecutive log records of one generation, with memory as in NearDuplicateBatch.
type NearDuplicateRows struct {
	First         int           // number of the first record in its generation; 0 begins a generation
	Records       int           // 1 to 2^20
	Labels        device.Memory // position of each record's label
	Carries       int           // sum of the records' neardup.Result.Carries
	Carried       int           // number of labels that these records carry over
	FirstCarried  int           // number of labels that earlier records of the generation carry over
	CarriedLabels device.Memory // position of each label that these records carry over
	Keys          int           // number of inserted keys
	Inserted      device.Memory // inserted keys
	// KeyLabels has a uint32 per key. It is the number of the key's carried label in the generation. If the key has no carried label, it is
	// NearDuplicateParameters.Records plus the number of the key's record.
	KeyLabels device.Memory
	// Conflicts is a uint64, to which the device adds the number of keys that contradict the index. If it isn't 0
	// afterwards, the index must not be used.
	Conflicts device.Memory
}

// Sizes of a result's parts in bytes, as in millrace.h.
const (
	headerBytes   = 16
	rowBytes      = 32
	positionBytes = 16
	carryBytes    = 24
	hitsAt        = 24 // offset within a row
)

// alsoBytes returns the size of a record's first list, and listBytes returns the size of both lists.
func (p NearDuplicateParameters) alsoBytes() int { return (p.Bands - 1) * positionBytes }
func (p NearDuplicateParameters) listBytes() int {
	return p.alsoBytes() + (p.Bands*carryBytes+15)/16*16
}

// ResultBytes returns the size of a batch's result in bytes.
func (p NearDuplicateParameters) ResultBytes(records int) int {
	return headerBytes + records*(rowBytes+p.listBytes())
}

// Header decodes the header of a batch's result. carried is the number of labels that the current generation has
// carried over so far. It also counts labels for which there was no room. wrong is the number of keys with a wrong band
// since the index was created. It is 0 unless the caller has a bug.
func (p NearDuplicateParameters) Header(result []byte) (carried, wrong uint64) {
	return binary.LittleEndian.Uint64(result), binary.LittleEndian.Uint64(result[8:])
}

// Read sets r to record i of a batch's result, except for its position and keys. It reuses the memory of r's slices.
func (p NearDuplicateParameters) Read(result []byte, records, i int, r *neardup.Result) {
	le := binary.LittleEndian
	row := result[headerBytes+i*rowBytes:]
	lists := result[headerBytes+records*rowBytes+i*p.listBytes():]
	also, carried := lists[:p.alsoBytes()], lists[p.alsoBytes():p.listBytes()]
	r.Label, r.Inserted = readPosition(row), le.Uint64(row[16:])
	r.Hits, r.Carries, r.Relabeled = int(row[hitsAt]), int(row[26]), row[27] != 0
	r.Also, r.Carried = r.Also[:0], r.Carried[:0]
	for range row[25] {
		r.Also, also = append(r.Also, readPosition(also)), also[positionBytes:]
	}
	if r.Relabeled {
		return
	}
	for range r.Carries {
		r.Carried = append(r.Carried, neardup.CarryOver{Label: readPosition(carried), Bands: le.Uint64(carried[positionBytes:])})
		carried = carried[carryBytes:]
	}
}

// hits returns the number of records with hits in a batch's result.
func (p NearDuplicateParameters) hits(result []byte, records int) (n int) {
	for i := range records {
		if result[headerBytes+i*rowBytes+hitsAt] > 0 {
			n++
		}
	}
	return n
}

func readPosition(b []byte) device.Position {
	return device.Position{Sequence: binary.LittleEndian.Uint64(b), Record: binary.LittleEndian.Uint64(b[8:])}
}
