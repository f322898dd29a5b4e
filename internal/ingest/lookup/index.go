package lookup

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
