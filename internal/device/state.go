package device

// Position identifies a record of a stream: the sequence of its message in the stream, from 1, and the number of the record in the
// message, from 0. The zero Position is before all records.
type Position struct{ Sequence, Record uint64 }

// Compare returns -1 if p is before q, 0 if they are equal, and 1 if p is after q.
func (p Position) Compare(q Position) int {
	switch { // cmp.Or isn't inlined, and states compare millions of positions per second
	case p.Sequence < q.Sequence, p.Sequence == q.Sequence && p.Record < q.Record:
		return -1
	case p == q:
		return 0
	}
	return 1
}

// StateSize is the size of a State.
type StateSize struct {
	// Records is the number of records of a generation, at least 1. A record's result depends on at least as many records before it, and
	// on at most twice as many.
	Records int

	// Batch is the maximum number of records in one call of Apply, from 1 to Records, and at most 2^20.
	Batch int
}

// StateMemory is the memory of a State, in bytes.
type StateMemory struct {
	Device int64 // memory of the device; on a CPU, memory of the process
	Pinned int64 // pinned host memory for a batch; 0 on a CPU
}

// State holds a stateful operator's data about the earlier records of one partition. The operator's kernel has no
// state: its result for a record is the record's keys. The State then decides on the records in the order of the
// stream.
//
// Decisions depend on the records and their positions alone, not on the device, the batches or the calls of Undo. All memory is allocated
// when the State is created. Only one goroutine at a time may call the methods, except Stats.
//
// A refused call of Apply or Undo changes nothing. After any other error, and after an error of Replay, the State is unusable: create a new
// one and replay the log. A refusal wraps ErrInvalid, and has no Code of the device.
type State interface {
	// Apply decides on consecutive records. It takes the position of each record and the records' keys, which the kernel has computed, back
	// to back. Positions ascend within a call and from call to call, so no record is applied twice. Afterwards, Undo can't remove earlier
	// records. The result is valid until the next call of Apply, Undo or Replay. Apply refuses positions out of order, too many records,
	// and keys that no kernel computes.
	Apply(positions []Position, keys []byte) (Decisions, error)

	// Undo removes the records of the last call of Apply, as if it had not been made. It refuses unless Apply was the last successful call.
	Undo() error

	// Replay applies a log entry. The first entry of a new state begins a generation, and each other entry follows the one before it.
	// Replay checks each field, because the entry may come from anywhere. After Replay, the state gives the same decisions as the one that
	// wrote the log.
	Replay(entry []byte) error

	// ReadEntry returns the description of a log entry's records. It fails with ErrInvalid if the entry contradicts itself. It doesn't read
	// the records.
	ReadEntry(entry []byte) (EntryInfo, error)

	// Applied returns the number of records that the state has taken, including those of generations that a trimmed log lacks, and the
	// position of the last one.
	Applied() (records uint64, last Position)

	// Stats returns figures for metrics. Any goroutine may call it.
	Stats() StateStats

	// Close frees the state's memory. After the first call, it does nothing.
	Close() error
}

// Decisions are the results of one call of State.Apply.
type Decisions interface {
	// AppendValue appends the value of a record, as operator.Variable describes values: a record of Stride bytes, then its byte strings.
	AppendValue(dst []byte, record int) []byte

	// AppendLog appends log entries of the records [first, end), of at most limit bytes each. Replay needs the entries of all records, in
	// order, with any division. AppendLog fails with ErrInvalid if limit is too small for a record.
	AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error)
}

// EntryInfo describes the records of a log entry. They are consecutive, and of one generation.
type EntryInfo struct {
	Generation     uint64
	First          int // number of the first record in its generation, from 0
	Previous, Last Position
}

// StateStats are figures of a State.
type StateStats struct {
	Bytes      int64   // StateMemory.Device
	Records    uint64  // number of records in both generations
	Generation uint64  // number of the young generation, from 0
	Load       float64 // records of the young generation as a share of StateSize.Records, 0 to 1
	Decided    uint64  // number of records decided by Apply since creation. It never decreases: if a batch is undone, the next ones replace it
	Hits       uint64  // number of decided records that depend on an earlier record
}

// StateHostKernel is a BoundHostKernel of a stateful operator. Devices that use host memory keep its states.
type StateHostKernel interface {
	BoundHostKernel

	// NewState creates an empty state, like Device.NewState.
	NewState(StateSize) (State, error)

	// StateBytes returns the memory that NewState allocates, in bytes.
	StateBytes(StateSize) (int64, error)
}
