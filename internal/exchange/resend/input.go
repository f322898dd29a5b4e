package resend

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/compression"
	"millrace/internal/exchange"
	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/textframes"
)

// Reading is how the worker reads its inputs. A record's dead letter is sent as a frame that such a worker splits.
type Reading struct {
	Framing    frame.Framing
	Column     string               // of the records in an Arrow stream; empty: the only one
	Decompress compression.Encoding // how the worker decompresses messages
}

// errRefused is the error of a dead letter from which no run can make its input.
var errRefused = errors.New("refused")

// refuse returns an errRefused that says why, and what to do.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errRefused, fmt.Errorf(format, args...))
}

// payloadOf returns the sequence of the message with the payload of a dead letter, given the headers and the sequence of the dead letter. It
// refuses a dead letter whose payload or headers are left out.
func payloadOf(h nats.Header, stream string, sequence uint64) (uint64, error) {
	omitted, beside := h.Get(client.HeaderOmitted), exchange.Number(h, client.HeaderPayloadSequence)
	what, _, withoutHeaders := strings.Cut(omitted, ",")
	switch {
	case omitted == "":
		return sequence, nil
	case what == "record" && beside > 0:
		return 0, refuse("its record fits no message (%s: %s): publish the whole input again, or the record in a larger frame: nats stream get %s %d has the input",
			client.HeaderOmitted, omitted, stream, beside)
	case what == "payload" && beside == 0:
		return 0, refuse("its payload is stored nowhere (%s: %s): copy the input while its stream still has it: nats stream get %s %s",
			client.HeaderOmitted, omitted, h.Get(client.HeaderStream), h.Get(client.HeaderSequence))
	case what == "payload" && !withoutHeaders:
		return beside, nil
	}
	return 0, refuse("the headers of its input were left out (%s: %s): publish its payload with the headers that the worker needs: nats stream get %s %d has the payload",
		client.HeaderOmitted, omitted, stream, cmp.Or(beside, sequence))
}

// newInput returns the input of a dead letter with these headers and this payload.
func (r Reading) newInput(letter nats.Header, payload []byte) (*nats.Msg, error) {
	m := &nats.Msg{Subject: letter.Get(client.HeaderSubject), Header: restored(letter), Data: payload}
	if letter.Get(client.HeaderRecord) == "" {
		return m, nil
	}
	framing := r.Framing
	if framing == frame.Auto {
		framing = frame.LengthDelimited // which takes any bytes
		m.Header.Set(client.HeaderContentType, frame.ContentTypeOf(framing))
	}
	var err error
	if m.Data, err = r.pack(framing, payload); err != nil {
		return nil, refuse("its record can't be sent as a frame if MILLRACE_FRAMING is %v: %w: set it as when the record was given up, or publish the record in another framing", r.Framing, err)
	}
	return m, nil
}

// pack returns a frame of one record, compressed as the worker expects it of messages without a Content-Encoding.
func (r Reading) pack(framing frame.Framing, record []byte) (body []byte, err error) {
	if framing == frame.Arrow {
		f := arrow.NewFrame(cmp.Or(r.Column, "record"))
		if err = f.Append(record); err == nil {
			body, err = f.Encode(nil)
		}
	} else {
		body, err = textframes.Append(nil, framing, [][]byte{record})
	}
	switch {
	case err != nil || r.Decompress == compression.None || r.Decompress == compression.Auto:
		return body, err
	case r.Decompress == compression.Gzip:
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err = w.Write(body)
		err = errors.Join(err, w.Close())
		return out.Bytes(), err
	}
	return new(compression.Compressor).Append(nil, r.Decompress, body), nil
}

// restored returns the headers that the input of a dead letter had. Those on which the server acts don't come back: they were meant for the
// first publish. Those headers, and headers that no client can write, stay in client.HeaderInput, which the next dead letter keeps.
func restored(letter nats.Header) nats.Header {
	h := nats.Header{}
	for name, values := range letter {
		if !results.IsReserved(name) {
			h[name] = slices.Clone(values)
		}
	}
	for _, line := range letter[client.HeaderInput] {
		name, value, _ := strings.Cut(line, ":")
		if results.IsReserved(name) || !results.IsWritable(name) {
			h[client.HeaderInput] = append(h[client.HeaderInput], line)
			continue
		}
		h[name] = append(h[name], strings.TrimPrefix(value, " "))
	}
	return h
}
