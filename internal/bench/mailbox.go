package bench

import (
	"sync/atomic"
	"unsafe"
)

// mailboxWords is the head of a persistent kernel's mailbox, in host memory to which the kernel has access; the payload
// follows it. kernels/persistent.cuh has the same layout.
//
// Payloads are numbered from 1. The host writes a payload and its length, and then stores its number in posted. The
// kernel writes the record, and then stores the number in finished.
type mailboxWords struct {
	posted   atomic.Uint64 // by the host: number of the last payload, or mailboxStop
	bytes    uint32        // by the host: the payload's length
	_        [52]byte
	finished atomic.Uint64 // by the kernel: number of the last payload whose record is written
	_        [56]byte
}

// mailboxStop in mailboxWords.posted ends the kernel.
const mailboxStop = ^uint64(0)

const (
	mailboxHead  = int(unsafe.Sizeof(mailboxWords{})) // bytes before the payload
	mailboxAlign = 16                                 // a mailbox's size is a multiple of this many bytes
)

// mailboxBytes returns the size of a mailbox for payloads of up to that many bytes.
func mailboxBytes(payload int) int { return mailboxHead + roundUp(payload, mailboxAlign) }

// wordsOf returns the words of the mailbox in memory, which must be aligned to 64 bytes.
func wordsOf(memory []byte) *mailboxWords {
	return (*mailboxWords)(unsafe.Pointer(unsafe.SliceData(memory[:mailboxHead])))
}
