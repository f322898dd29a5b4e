// Package unpack turns a message into its records: it decompresses the message and splits it.
//
// Package inflight uses it. An Unpacker works ahead of the goroutines that fill batches, on several messages at once, while there is
// memory. A message for which there was none is unpacked when a batch needs it. What a Message holds besides its body as received
// counts as memory: the decompressed body, the index of the records, and the table of their results.
//
// Start reading at Unpacker.Start, then Message.
package unpack

import (
	"cmp"
	"runtime"
	"sync"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
)

// Settings defines how messages are unpacked.
type Settings struct {
	Split      frame.Splitter       // how a message is split, and the limits of a frame
	Decompress compression.Encoding // how messages are compressed
	Results    Results              // the results of the records
}

// Memory bounds the memory of messages. Its methods don't wait, and several goroutines may call them.
type Memory interface {
	Try(bytes int64) bool // takes memory; reports false if there is too little
	Force(bytes int64)    // takes memory, even if that exceeds the bound
	Give(bytes int64)     // gives memory back
}

// Input is a message as received.
type Input interface {
	Data() []byte
	Headers() nats.Header
}

// Unpacker unpacks messages.
type Unpacker struct {
	Settings
	memory        Memory
	ahead         chan struct{} // holds a token for each goroutine that unpacks ahead
	decompressors sync.Pool     // of *compression.Decompressor
	idle          idleBuffers
}

// New returns an Unpacker whose messages take their memory from memory. It calls retain when the memory that it keeps between messages
// changes from before to now bytes, and keeps none for which retain reports false.
func New(s Settings, memory Memory, retain func(before, now int64) bool) *Unpacker {
	s.Split.MaxBytes = cmp.Or(s.Split.MaxBytes, frame.DefaultMaxBytes)
	return &Unpacker{Settings: s, memory: memory, ahead: make(chan struct{}, runtime.GOMAXPROCS(0)), idle: idleBuffers{retain: retain}}
}

// Splits reports whether messages may be frames or compressed, so that the size of a message does not tell that of its records.
func (s *Settings) Splits() bool {
	return s.Split.Framing != frame.None || s.Decompress != compression.None
}

// Plain reports whether a message is one record, as it is.
func (s *Settings) Plain(in Input) bool {
	if !s.Splits() {
		return true
	}
	h := in.Headers()
	return s.isSingle(h) && s.isAsIs(h) && len(in.Data()) <= s.Split.MaxRecord
}

// Start begins to unpack a message into m, which must be zero. It doesn't wait.
func (u *Unpacker) Start(m *Message, in Input) {
	m.u, m.in = u, in
	go func() {
		u.ahead <- struct{}{}
		m.TryOpen()
		<-u.ahead
	}()
}
