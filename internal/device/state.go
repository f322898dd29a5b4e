package device

// Position identifies a record of a stream. Sequence is the stream sequence of the record's message, from 1. Record is the record's number
// in the message, from 0. The zero Position is before all records.
type Position struct{ Sequence, Record uint64 }

// Compare returns -1 if p is before q, 0 if they are equal, and 1 if p is after q.
func (p Position) Compare(q Position) int {
	switch { // faster than cmp.Or, which isn't inlined
	case p.Sequence < q.Sequence, p.Sequence == q.Sequence && p.Record < q.Record:
		return -1
	case p == q:
		return 0
	}
	return 1
}

// StateSize is the size of a State.
type StateSize struct {
	// Records is the number of records per generation, at least 1. A record's result depends on at least the Records preceding records and
	// at most twice as many.
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
// state. It only computes each record's keys. The State then makes decisions about the records in stream order.
//
// Decisions depend only on the records and their positions, not on the device, the batches or the calls of Undo. NewState allocates all
// memory. Only one goroutine at a time may call the methods, except Stats.
//
// A refused call of Apply or Undo changes nothing. Its error wraps ErrInvalid and has no device code. After any other error, and after any
// error of Replay, the State is unusable. In that case, create a new State and replay the log.
type State interface {
	// Apply decides on consecutive records. keys holds the keys of all records, as computed by the kernel, back to back. Positions ascend
	// within a call and from call to call, so no record is applied twice. Afterwards, Undo can't remove earlier records. The result is
	// valid until the next call of Apply, Undo or Replay. Apply refuses positions out of order, too many records, and keys that the kernel
	// can't have computed.
	Apply(positions []Position, keys []byte) (Decisions, error)

	// Undo removes the records of the last call of Apply, as if that call had not been made. It is refused unless Apply was the last
	// successful call.
	Undo() error

	// Replay applies a log entry. The first entry of a new state must begin a generation, and each other entry must follow the previous
	// entry. Replay checks every field, because the entry isn't trusted. After Replay, the state makes the same decisions as the state that
	// wrote the log.
	Replay(entry []byte) error

	// ReadEntry describes the records of a log entry without decoding them. It fails with ErrInvalid if the entry is inconsistent.
	ReadEntry(entry []byte) (EntryInfo, error)

	// Applied returns the position of the last record and the number of records that the state has applied. The number includes the
	// generations that a trimmed log lacks.
	Applied() (records uint64, last Position)

	// Stats returns statistics for metrics. Any goroutine may call it.
	Stats() StateStats

	// Close frees the state's memory. A second Close returns nil.
	Close() error
}

// Decisions are the results of one call of State.Apply.
type Decisions interface {
	// AppendValue appends the value of a record in the format of operator.Variable: a fixed record of Stride bytes and then its byte
	// strings.
	AppendValue(dst []byte, record int) []byte

	// AppendLog appends log entries for the records [first, end), each of at most limit bytes. Replay needs the entries of all records in
	// order, however they are divided. AppendLog fails with ErrInvalid if limit is too small for a record.
	AppendLog(entries [][]byte, first, end, limit int) ([][]byte, error)
}

// EntryInfo describes the records of a log entry. The records are consecutive and belong to one generation.
type EntryInfo struct {
	Generation     uint64
	First          int // number of the first record in its generation, from 0
	Previous, Last Position
}

// StateStats holds statistics of a State.
type StateStats struct {
	Bytes      int64   // same value as StateMemory.Device
	Records    uint64  // number of records in both generations
	Generation uint64  // number of the young generation, from 0
	Load       float64 // records of the young generation as a share of StateSize.Records, 0 to 1
	Decided    uint64  // number of records that Apply has decided since creation; records that replace undone records don't count again
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
