package unpack

import (
	"errors"
	"time"

	"millrace/internal/compression"
)

// guessedRatio is the assumed ratio of a compressed message that doesn't declare its size.
const guessedRatio = 4

// decompressed returns the body, decompressed if it was compressed. It returns errShort if there is too little memory and must is not
// set.
func (m *Message) decompressed(must bool) ([]byte, error) {
	body := m.in.Data()
	encoding, err := m.u.encoding(m.in.Headers())
	if err != nil || encoding == compression.None {
		return body, err
	}
	start := time.Now()
	m.Compressed = len(body)
	body, err = m.decompress(encoding, must)
	m.Decompressing += time.Since(start)
	m.Decompressed = len(body)
	return body, err
}

// decompress decompresses the body. Without must it first takes the memory for as many bytes as the message declares, or as are
// usual, and for more if that is too little.
func (m *Message) decompress(e compression.Encoding, must bool) ([]byte, error) {
	packed, most := m.in.Data(), m.u.Split.MaxBytes
	if must {
		return m.decompressWithin(e, most, true)
	}
	expected, ok := compression.Declared(e, packed)
	if !ok {
		expected = guessedRatio * int64(len(packed))
	}
	for limit := min(most, expected); ; limit = min(most, guessedRatio*max(limit, 1<<10)) {
		m.release()
		if !m.take(limit, false) {
			return nil, errShort
		}
		body, err := m.decompressWithin(e, limit, limit == most)
		if err == nil || limit == most || !errors.Is(err, compression.ErrTooLarge) {
			return body, err
		}
	}
}

// decompressWithin decompresses the body to at most limit bytes. The message holds the memory afterwards, unless that was too little
// and final is not set.
func (m *Message) decompressWithin(e compression.Encoding, limit int64, final bool) ([]byte, error) {
	d, _ := m.u.decompressors.Get().(*compression.Decompressor)
	if d == nil {
		d = &compression.Decompressor{}
	}
	defer m.u.decompressors.Put(d)
	body, err := d.Append(m.body[:0], e, m.in.Data(), limit)
	m.body = body[:0]
	if errors.Is(err, compression.ErrTooLarge) && !final {
		return nil, err
	}
	m.release()
	m.take(int64(cap(body)), true) // the memory is in use already
	return body, err
}
