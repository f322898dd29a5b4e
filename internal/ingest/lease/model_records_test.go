package lease

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/record"
)

// modelInput is a message of the lease model. It is a single record without framing, a frame of any number of
// records, or a frame that can't be read.
type modelInput struct {
	stored  time.Time // time at which the input stream stored it
	body    []byte
	header  nats.Header
	framed  bool
	broken  bool
	large   bool // whether no batch has space for it
	records [][]byte
	fails   []bool // whether the operator fails on each record
	lethal  []bool // whether each record kills the worker that computes it
}

// modelFailing and modelLethal are properties of records. A device of the model identifies a record by its checksum.
const (
	modelFailing = "the operator fails on this"
	modelLethal  = "this kills the worker"
)

// newModelInput returns a random message. All records have different bytes, and no checksum is 0, because empty rows
// have that checksum.
func (m *leaseModel) newModelInput(sequence uint64, lethal bool) *modelInput {
	random := rand.New(rand.NewPCG(m.seed, sequence))
	in := &modelInput{framed: m.framed && random.IntN(2) == 0, stored: time.Now().Add(time.Duration(sequence) - time.Millisecond).UTC()}
	n := 1
	if in.framed {
		n = []int{0, 1, 1 + random.IntN(5), 1 + random.IntN(3*modelBatch)}[random.IntN(4)]
		in.header = nats.Header{"Content-Type": {"application/x-ndjson"}}
		in.broken = !lethal && random.IntN(12) == 0
	}
	if lethal {
		n = max(n, 1)
	}
	in.large = !m.framed && !lethal && random.IntN(12) == 0
	killers := map[int]bool{}
	for range 1 + random.IntN(2) {
		killers[random.IntN(max(n, 1))] = lethal
	}
	for i := range n {
		fails := m.framed && !killers[i] && random.IntN(60) == 0
		kind := "fine"
		switch {
		case fails:
			kind = modelFailing
		case killers[i]:
			kind = modelLethal
		}
		in.records = append(in.records, fmt.Appendf(nil, "record %d of message %d of run %d: %s%s", i, sequence, m.seed, kind, m.modelText(random.IntN(1000))))
		in.fails, in.lethal = append(in.fails, fails), append(in.lethal, killers[i])
		sum := crc32.Checksum(in.records[i], castagnoli)
		m.failing[sum], m.lethal[sum] = fails, killers[i]
		m.killers += map[bool]int{true: 1}[killers[i]]
	}
	switch {
	case in.broken:
		in.header, in.records, in.fails, in.lethal = nats.Header{"Content-Type": {"application/vnd.millrace.length-delimited"}}, nil, nil, nil
		in.body = []byte("\x00\x00\x00\x09short")
	case in.framed:
		for _, r := range in.records {
			in.body = append(append(in.body, r...), '\n')
		}
	case in.large:
		in.body = bytes.Repeat(in.records[0], 1+modelBatchBytes/len(in.records[0]))
	default:
		in.body = in.records[0]
	}
	return in
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *leaseModel) input(sequence uint64) *modelInput {
	m.notes.Lock()
	defer m.notes.Unlock()
	return m.messages[sequence]
}

// modelResults are the device's results for a batch.
type modelResults []byte

func (r modelResults) checksum(row int) uint32 { return binary.LittleEndian.Uint32(r[4*row:]) }

// kills reports whether any of these rows kills the worker that computes it.
func (m *leaseModel) kills(r modelResults) bool {
	m.notes.Lock()
	defer m.notes.Unlock()
	for row := range len(r) / 4 {
		if m.lethal[r.checksum(row)] {
			return true
		}
	}
	return false
}

func (m *leaseModel) failingRows(r modelResults) (rows []int) {
	m.notes.Lock()
	defer m.notes.Unlock()
	for row := range len(r) / 4 {
		if m.failing[r.checksum(row)] {
			rows = append(rows, row)
		}
	}
	return rows
}

// errModelOperator is the error of a batch with a record on which the operator fails.
var errModelOperator = errors.New("the operator failed")

var modelSplitter = frame.Splitter{Framing: frame.Auto, MaxRecords: 1000, MaxBytes: 1 << 20}

// modelRecord identifies a record by the message's sequence and the record's index.
type modelRecord struct {
	sequence uint64
	record   int
}

// loneRecord returns the record that an annotation names as the only one on the device. ok is false if it names no
// single record.
func loneRecord(alone string) (r modelRecord, ok bool) {
	fields := strings.Fields(alone) // sequence, time, first record, records, deaths, condemned records
	if len(fields) < 5 || fields[3] != "1" {
		return r, false
	}
	r.sequence, _ = strconv.ParseUint(fields[0], 10, 64)
	r.record, _ = strconv.Atoi(fields[2])
	return r, true
}

func (s *modelServer) storeLetter(r modelRecord, why results.Reason) {
	in, status := s.m.input(r.sequence), record.OperatorError
	if why == results.DeviceFault {
		status = record.DeviceFault
	}
	switch {
	case why != results.DeviceFault && why != results.OperatorError:
		s.m.violate("record %d of input %d is given up because of %s", r.record, r.sequence, why)
	case status == record.OperatorError && !in.fails[r.record]:
		s.m.violate("record %d of input %d is given up, and the operator does not fail on it", r.record, r.sequence)
	case status == record.DeviceFault && s.aloneRecords[r] < 2 && !s.m.shared:
		s.m.violate("record %d of input %d is condemned, and was alone at %d deaths", r.record, r.sequence, s.aloneRecords[r])
	case status == record.DeviceFault && !s.m.chaos && !in.lethal[r.record]:
		s.m.violate("record %d of input %d is condemned, and only other records kill", r.record, r.sequence)
	}
	if status == record.DeviceFault {
		s.m.did("record condemned")
	}
	s.letters[r] = status
	s.m.did("record letter")
}

func (s *modelServer) mayGiveUp(sequence uint64, why results.Reason) {
	in := s.m.input(sequence)
	if why == results.TooLarge {
		s.m.did("too large")
	}
	switch {
	case why == results.DeviceFault && in.framed && len(in.records) > 0 && !(s.m.shared && s.m.chaos): // the server may accept no notes
		s.m.violate("input %d of %d records is given up as a whole", sequence, len(in.records))
	case why == results.MaxDeliver:
		s.m.violate("input %d is given up because of its deliveries", sequence)
	case why == results.DeviceFault && s.alone[sequence] < 2 && !s.m.shared:
		s.m.violate("input %d is given up, and was alone at %d deaths", sequence, s.alone[sequence])
	case why == results.DeviceFault && !s.m.chaos && !slices.Contains(in.lethal, true):
		s.m.violate("input %d is given up, and only others kill", sequence)
	case why == results.TooLarge && !in.large:
		s.m.violate("input %d is given up because of its size, and a batch has space for it", sequence)
	case why == results.InvalidFrame && !in.broken:
		s.m.violate("input %d is given up, and its frame is fine", sequence)
	case why == results.OperatorError && (in.framed || !in.fails[0]):
		s.m.violate("input %d is given up, and the operator does not fail on it", sequence)
	}
}

// modelPull simulates a pull. It includes its requests at the server, the connection to the client, and the messages
// that the client has received.
type modelPull struct {
	w      *leaseWorker
	e      *modelLease
	in     chan *modelMessage
	broken chan error

	open        bool // whether the server has its requests
	leaving     bool // whether the client has ended the pull; the server may not have processed that
	request     string
	requestTurn uint64
	wire        []*modelMessage
	fresh       time.Time // time of the request without a pin

	turn   uint64 // turn that the client has seen
	pinned string
}

// cut drops the messages on the wire from the i-th on. It keeps the first one after a reset, as modelServer.reset
// explains.
func (p *modelPull) cut(i int) {
	kept := p.wire[:i]
	for _, msg := range p.wire[i:] {
		if msg.number == 1 {
			kept = append(kept, msg)
		}
	}
	p.wire = kept
}

// lost notifies the client that another client is pinned. The client then makes a request without a pin. The caller
// holds m.mu.
func (p *modelPull) lost() {
	p.request, p.pinned, p.fresh = "", "", time.Now()
}

func (p *modelPull) next(ctx context.Context) (inflight.Incoming, error) {
	idle := time.NewTimer(topology.PinnedFor)
	defer idle.Stop()
	var msg *modelMessage
	select {
	case msg = <-p.in:
	default:
		select {
		case msg = <-p.in:
		case err := <-p.broken:
			return nil, err
		case <-idle.C:
			return nil, pull.ErrIdle
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if msg.turn > p.turn {
		if err := p.learnPin(ctx, msg.turn); err != nil {
			return nil, err
		}
	}
	return msg, nil
}

// learnPin records the pin of a turn in p, under the same conditions as pull.Pull.
func (p *modelPull) learnPin(ctx context.Context, turn uint64) error {
	m := p.w.m
	return p.w.call(ctx, "pin", false, func() error {
		m.server.expirePin()
		if p.requestTurn != turn || time.Since(p.fresh) >= topology.PinnedFor || m.server.pin == "" {
			return errors.New("the pin is not known")
		}
		p.turn, p.pinned = turn, m.server.pin
		return nil
	})
}

func (p *modelPull) Pin() string {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	return p.pinned
}

func (p *modelPull) Drain()                            { panic("only shared delivery drains") }
func (p *modelPull) rest(func(inflight.Incoming) bool) {}

func (p *modelPull) Keep() error {
	m := p.w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.pinned != "" && p.pinned == m.server.pin && !p.w.dead && !m.isFrozen(p.w) {
		m.server.pinSeen = time.Now()
	}
	return nil
}

func (p *modelPull) leave(ctx context.Context, turn uint64) {
	for rest := true; rest; {
		select {
		case msg := <-p.in:
			if msg.turn > turn {
				_ = p.learnPin(ctx, msg.turn)
				rest = false
			}
		default:
			rest = false
		}
	}
	p.w.m.mu.Lock()
	p.leaving = true
	p.w.m.mu.Unlock()
}
