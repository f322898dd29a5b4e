package resend

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/cliclient"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/textframes"
)

const (
	// window and windowBytes limit the dead letters that are sent concurrently.
	window      = 32
	windowBytes = 32 << 20

	// publishTimeout is the maximum time for the server to store an input. publishPatience is the time after which a
	// run gives up on a lost connection.
	publishTimeout  = 5 * time.Second
	publishPatience = 15 * time.Second

	// sizeHeader is the header with the size of a message's body, on deliveries without the body.
	sizeHeader = "Nats-Msg-Size"

	// maxFailures is the number of consecutive failures after which a run gives up.
	maxFailures = 10
)

// handle sends the selected dead letters of a fetch, and holds the others for later runs. It acknowledges messages that
// aren't dead letters, except in a dry run. asked is the time of the fetch's request.
func (r *run) handle(ctx context.Context, came []*pull.Message, asked time.Time) {
	var letters []*pull.Message
	for _, m := range came {
		h := m.Headers()
		switch {
		case sequenceOf(m) > r.last:
			r.reached = true
			r.queue.hold(m)
		case !isDeadLetter(h):
			if r.DryRun || r.queue.acknowledge(ctx, m) != nil {
				r.queue.hold(m)
			}
		case h.Get(client.HeaderStream) != r.Topology.Stream || !r.Select.selects(h):
			r.report.Left[h.Get(client.HeaderReason)]++
			r.queue.hold(m)
		default:
			letters = append(letters, m)
		}
	}
	for len(letters) > 0 && ctx.Err() == nil && !r.queue.isLate(asked) {
		n := r.fitting(letters)
		r.sendTogether(ctx, letters[:n])
		letters = letters[n:]
	}
	for _, m := range letters {
		r.queue.giveBack(m)
	}
}

// fitting returns the number of letters to send concurrently, counted from the first.
func (r *run) fitting(letters []*pull.Message) (n int) {
	for bytes := 0; n < min(len(letters), window); n++ {
		h := letters[n].Headers()
		size := int(cliclient.Number(h, sizeHeader))
		if h.Get(client.HeaderPayloadSequence) != "" {
			size = int(r.Conn.MaxPayload())
		}
		if bytes += size; n > 0 && bytes > windowBytes {
			break
		}
	}
	return n
}

// sendTogether sends dead letters concurrently, at the configured rate. When ctx ends, it finishes the started dead
// letters and holds the remaining ones.
func (r *run) sendTogether(ctx context.Context, letters []*pull.Message) {
	var all sync.WaitGroup
	entries := make([]*Entry, len(letters))
	for i, m := range letters {
		if r.Rate > 0 && r.pace.Wait(ctx) != nil || ctx.Err() != nil {
			break
		}
		e := &Entry{Letter: sequenceOf(m), Header: m.Headers()}
		entries[i] = e
		all.Go(func() { e.duplicate, e.Err = r.send(context.WithoutCancel(ctx), m, e) })
	}
	all.Wait()
	for i, m := range letters {
		if entries[i] == nil {
			r.queue.hold(m)
		} else {
			r.record(m, entries[i])
		}
	}
}

// errGone is the error of a dead letter that the stream has removed since its delivery.
var errGone = errors.New("the stream has removed it")

// send publishes the input of a dead letter and then acknowledges the dead letter. A dry run does neither.
func (r *run) send(ctx context.Context, m *pull.Message, e *Entry) (duplicate bool, err error) {
	input, err := r.input(ctx, e.Letter)
	if err != nil {
		return false, err
	}
	if e.Bytes = len(input.Data); r.DryRun {
		return false, nil
	}
	stored, err := r.publish(ctx, input)
	switch explained := cliclient.Explain(err, r.Conn, r.Topology.Stream, input.Subject); {
	case isTooLarge(err):
		return false, refuse("%w: raise the limit (max_payload of the server, max_msg_size of the stream)", explained)
	case err != nil:
		return false, explained
	}
	return stored.Duplicate, r.queue.acknowledge(ctx, m)
}

// isTooLarge reports whether err means that a message exceeds a size limit of the server or the stream.
func isTooLarge(err error) bool {
	const exceedsMaximum = 10054
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsMaximum
}

func (r *run) input(ctx context.Context, sequence uint64) (*nats.Msg, error) {
	letter, err := r.queue.read(ctx, sequence)
	switch {
	case err != nil:
		return nil, err
	case letter == nil:
		return nil, errGone
	}
	from, err := payloadOf(letter.Header, r.queue.stream, sequence)
	if err != nil {
		return nil, err
	}
	payload := letter
	if from != sequence {
		if payload, err = r.queue.read(ctx, from); err != nil {
			return nil, err
		}
		if payload == nil {
			return nil, refuse("its payload was message %d of the stream, which has removed it: copy the input while its stream still has it: nats stream get %s %s",
				from, letter.Header.Get(client.HeaderStream), letter.Header.Get(client.HeaderSequence))
		}
	}
	input, err := r.Reading.newInput(letter.Header, payload.Data)
	if err != nil {
		return nil, err
	}
	input.Header.Set(jetstream.MsgIDHeader, r.queue.stream+":"+strconv.FormatUint(sequence, 10)+":"+strconv.FormatInt(letter.Time.UnixNano(), 10)+":retry")
	input.Header.Set(jetstream.ExpectedStreamHeader, r.Topology.Stream)
	return input, nil
}

// publish stores an input. If the response was lost with the connection, it publishes the input again. The stream drops
// a second copy by its id.
func (r *run) publish(ctx context.Context, input *nats.Msg) (*jetstream.PubAck, error) {
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, publishTimeout)
		ack, err := r.js.PublishMsg(once, input, jetstream.WithRetryAttempts(4), jetstream.WithRetryWait(500*time.Millisecond))
		cancel()
		if missing := cliclient.Refusal(r.Conn); err != nil && missing != nil {
			return nil, missing
		}
		if err == nil || !cliclient.Lost(err) || time.Since(began) > publishPatience {
			return ack, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// record adds the result for a dead letter to the report.
func (r *run) record(m *pull.Message, e *Entry) {
	switch err := e.Err; {
	case errors.Is(err, errGone):
		if !r.DryRun {
			_ = m.Ack() // prevents redelivery
		}
		return
	case errors.Is(err, errRefused):
		r.report.Refused++
	case err != nil:
		r.report.Failed++
		if r.row++; r.row >= maxFailures || cliclient.Hopeless(err) || cliclient.Lost(err) {
			r.stop(cliclient.ErrGivenUp)
		}
	case e.duplicate:
		r.report.Before++
	default:
		r.report.Sent[e.Header.Get(client.HeaderReason)]++
		r.report.Bytes += int64(e.Bytes)
	}
	if e.Err == nil {
		r.row = 0
	}
	if e.Err != nil || r.DryRun {
		r.queue.hold(m)
	}
	r.Each(*e)
}

// String returns a description of the dead letter for people.
func (e Entry) String() string {
	h := e.Header
	text := fmt.Sprintf("dead letter %d: input %s of %s", e.Letter, h.Get(client.HeaderSequence), h.Get(client.HeaderStream))
	if record := h.Get(client.HeaderRecord); record != "" {
		text += ", record " + record
	}
	return text + ", " + h.Get(client.HeaderSubject) + ", " + h.Get(client.HeaderReason)
}

// Reading holds the worker's settings for reading inputs. A record is sent as a frame that a worker with these
// settings splits.
type Reading struct {
	Framing    frame.Framing
	Column     string               // column of the records in an Arrow stream; empty for the only column
	Decompress compression.Encoding // compression of messages that the worker expects
}

// errRefused is the error of a dead letter whose input no run can restore.
var errRefused = errors.New("refused")

// refuse returns an errRefused with a reason and advice.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errRefused, fmt.Errorf(format, args...))
}

// payloadOf returns the sequence of the message that holds a dead letter's payload. The arguments are the headers, stream
// and sequence of the dead letter. payloadOf refuses a dead letter if no message holds its payload, or if the headers of
// its input were omitted.
func payloadOf(h nats.Header, stream string, sequence uint64) (uint64, error) {
	omitted, beside := h.Get(client.HeaderOmitted), cliclient.Number(h, client.HeaderPayloadSequence)
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

// newInput returns the input of a dead letter. The arguments are the headers and the payload of the dead letter.
func (r Reading) newInput(letter nats.Header, payload []byte) (*nats.Msg, error) {
	m := &nats.Msg{Subject: letter.Get(client.HeaderSubject), Header: restored(letter), Data: payload}
	m.Header.Set(client.HeaderRetryOf, retryOf(letter))
	if letter.Get(client.HeaderRecord) == "" {
		return m, nil
	}
	framing := r.Framing
	switch contentType := letter.Get(client.HeaderContentType); {
	case framing == frame.Auto && contentType != "":
		framing = frame.None // the worker reads the record by its content type
	case framing == frame.Auto:
		framing = frame.LengthDelimited // allows any bytes
		m.Header.Set(client.HeaderContentType, frame.ContentTypeOf(framing))
	case contentType == frame.ContentTypeOf(frame.Arrow) && framing == frame.Arrow:
		framing = frame.None // the record is a stream of one row
	}
	var err error
	if m.Data, err = r.pack(framing, payload); err != nil {
		return nil, refuse("its record can't be sent as a frame if MILLRACE_FRAMING is %v: %w: set it as when the record was given up, or publish the record in another framing", r.Framing, err)
	}
	return m, nil
}

// pack returns a frame of one record. It compresses the frame if the worker decompresses all messages, even without a
// Content-Encoding.
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

// retryOf returns the value of client.HeaderRetryOf for the input of a dead letter. If the dead letter's input was sent again before, it
// names the first one.
func retryOf(letter nats.Header) string {
	of := cmp.Or(letter.Get(client.HeaderRetryOf), letter.Get(client.HeaderSequence))
	if record := letter.Get(client.HeaderRecord); record != "" && !strings.Contains(of, ":") {
		of += ":" + record
	}
	return of
}

// restored returns the headers that the input of a dead letter had. Reserved headers, such as Nats-Msg-Id, were meant for
// the first publish. They and headers that no client can write are not restored. Both kinds stay in client.HeaderInput,
// which the next dead letter keeps.
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
