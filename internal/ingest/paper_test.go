package ingest

import "millrace/internal/ingest/inflight"

// paperMsg is a message that was never sent.
type paperMsg struct {
	inflight.Message
	data []byte
}

func (m *paperMsg) Data() []byte { return m.data }
