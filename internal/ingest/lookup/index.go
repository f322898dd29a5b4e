package lookup

import (
	"strconv"
	"strings"
)

// Input identifies the message of the input stream that a result belongs to.
type Input struct {
	Sequence uint64
	Stored   int64 // time when the input stream stored the message, in nanoseconds since 1970
}

// Wanted is an input to look up.
type Wanted struct {
	Input
	Subject string // subject of the input's result
}

const (
	// perBlock is the number of consecutive sequences in a block of the index.
	perBlock = 64

	// maxBlocks bounds the index at 4 million consecutive inputs in 32 MiB.
	maxBlocks = 1 << 16

	// maxOthers bounds the number of inputs that don't fit into blocks.
	maxOthers = 1 << 16
)

// index is the set of inputs that have a result. It takes 8 bytes per input if the sequences of the inputs are close
// together.
type index struct {
	blocks map[uint64]*[perBlock]int64 // Stored of each input, by sequence / perBlock; 0 means no input
	others map[Input]bool              // inputs whose sequence is used in blocks with another time

	unfinished unfinished // stored messages of inputs without a complete result
}

func newIndex() index {
	return index{blocks: map[uint64]*[perBlock]int64{}, others: map[Input]bool{}}
}

// add adds an input. It returns false if there is no space.
func (x *index) add(in Input) bool {
	x.unfinished.drop(in)
	key, i := in.Sequence/perBlock, in.Sequence%perBlock
	block := x.blocks[key]
	if block == nil {
		if len(x.blocks) >= maxBlocks {
			return false
		}
		block = new([perBlock]int64)
		x.blocks[key] = block
	}
	switch block[i] {
	case 0:
		block[i] = in.Stored
	case in.Stored:
	default:
		if len(x.others) >= maxOthers {
			return false
		}
		x.others[in] = true
	}
	return true
}

func (x *index) has(in Input) bool {
	if block := x.blocks[in.Sequence/perBlock]; block != nil && block[in.Sequence%perBlock] == in.Stored {
		return true
	}
	return x.others[in]
}

// keep removes all inputs outside the blocks of the given inputs.
func (x *index) keep(inputs []Input) {
	wanted := map[uint64]bool{}
	for _, in := range inputs {
		wanted[in.Sequence/perBlock] = true
	}
	for key := range x.blocks {
		if !wanted[key] {
			delete(x.blocks, key)
		}
	}
	for in := range x.others {
		if !wanted[in.Sequence/perBlock] {
			delete(x.others, in)
		}
	}
}

// Partial is a stored message that doesn't settle its input.
type Partial struct {
	ID     string
	Reason string // reason of a dead letter; empty for a part of a result
}

// unfinished contains the stored messages that don't settle their input: parts of results, and dead letters of records.
type unfinished struct {
	of    map[Input][]Partial
	count int  // number of messages
	full  bool // whether there is no space for more messages, because all of them belong to wanted inputs
}

// add adds a message. If there are already maxOthers messages, it first drops the messages of all unwanted inputs, and
// returns false.
func (u *unfinished) add(p Partial, in Input, wanted []Input) (kept bool) {
	kept = u.count < maxOthers
	if !kept && !u.full {
		u.keep(wanted)
		u.full = u.count >= maxOthers
	}
	if u.count < maxOthers {
		if u.of == nil {
			u.of = map[Input][]Partial{}
		}
		u.of[in] = append(u.of[in], p)
		u.count++
	}
	return kept
}

// keep drops the messages of all inputs except the given ones.
func (u *unfinished) keep(inputs []Input) {
	wanted := map[Input]bool{}
	for _, in := range inputs {
		wanted[in] = true
	}
	for in := range u.of {
		if !wanted[in] {
			u.drop(in)
		}
	}
}

func (u *unfinished) drop(in Input) {
	if all := u.of[in]; len(all) > 0 {
		u.count -= len(all)
		delete(u.of, in)
		u.full = false
	}
}

// parse returns the input that the given message id belongs to. ok is false if it belongs to no input of stream.
func parse(id, stream string) (in Input, ok bool) {
	rest, ok := strings.CutPrefix(id, stream+":")
	if !ok {
		return Input{}, false
	}
	number, rest, _ := strings.Cut(rest, ":")
	sequence, err := strconv.ParseUint(number, 10, 64)
	if err != nil || sequence == 0 {
		return Input{}, false
	}
	number = rest
	if end := strings.IndexAny(rest, ":/#"); end >= 0 { // a dead letter's reason, a part or a record follows
		number = rest[:end]
	}
	stored, err := strconv.ParseInt(number, 10, 64)
	if err != nil || stored <= 0 {
		return Input{}, false
	}
	return Input{Sequence: sequence, Stored: stored}, true
}

// isPartial reports whether the message with the given id doesn't settle its input. Such a message is the dead letter
// of a record, or a part before the last one. part is the message's header Millrace-Part.
func isPartial(id, part string) bool {
	if strings.LastIndexByte(id, '#') > strings.LastIndexByte(id, ':') {
		return true
	}
	n, of, ok := strings.Cut(part, "/")
	return ok && n != of
}
