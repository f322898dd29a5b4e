package lease

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/record"
)

// modelServer simulates one partition's consumer, its stream and its result stream, with the rules of nats-server
// 2.15 (consumer.go: processAckMsgLocked, processNak, nextWaiting, setPinnedTimer). It checks the invariants.
type modelServer struct {
	m *leaseModel
	// inputs has the stream sequences of the partition's messages, in order. The sequences between them belong to
	// other partitions.
	inputs []uint64

	modelConsumer
	saved    modelConsumer // state that the server has stored
	metadata map[string]string

	pin     string
	pinSeen time.Time // time of the pinned client's last request
	pins    int
	pulls   []*modelPull
	skipped bool // whether the last delivery was lost

	// With shared delivery: the receiver and the time of the last delivery, and the time of the redelivery after a nak, by input.
	sentTo          map[uint64]*leaseWorker
	sentAt, delayed map[uint64]time.Time

	results   map[uint64]string      // id of the result of each input with a result or a dead letter
	values    map[uint64]modelValues // results by input, with a stateful operator
	storedAt  map[uint64]int         // step in which each input's message was stored
	forgotten map[uint64]bool        // inputs that were delivered before a crash of the server or a reset
	// alone has the number of owners that were replaced while the annotations named an input as alone.
	alone map[uint64]int

	aloneRecords map[modelRecord]int           // same count for each record of a frame
	letters      map[modelRecord]record.Status // dead letters of records

	chains    [2]modelChain               // streams of results and of dead letters
	collector client.Collector[*nats.Msg] // reads the results

	highest uint64 // highest floor so far
}

func (s *modelServer) last() uint64 { return s.inputs[len(s.inputs)-1] }

// expirePin drops a pin whose client has been silent.
func (s *modelServer) expirePin() {
	if s.pin != "" && time.Since(s.pinSeen) >= topology.PinnedFor {
		s.m.did("pin expired")
		s.m.notes.Lock()
		s.m.lapsed = s.m.lapsed || s.m.calm && s.pinSeen.Before(s.m.calmAt)
		s.m.notes.Unlock()
		s.pin = ""
	}
}

// info returns the consumer's state.
func (s *modelServer) info() *jetstream.ConsumerInfo {
	s.expirePin()
	waiting := 0
	for _, in := range s.inputs {
		if in >= s.nextSequence {
			waiting++
		}
	}
	return &jetstream.ConsumerInfo{
		Config:         jetstream.ConsumerConfig{Metadata: maps.Clone(s.metadata)},
		Delivered:      s.recorded,
		AckFloor:       jetstream.SequenceInfo{Consumer: s.floorNumber, Stream: s.floorSequence},
		NumAckPending:  len(s.pending),
		NumPending:     uint64(waiting),
		PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: s.pin}},
	}
}

// redeliver makes an unacknowledged input due for redelivery, like a NAK.
func (s *modelServer) redeliver(sequence, number uint64) {
	if _, pending := s.pending[sequence]; !pending || number <= s.floorNumber || number > s.nextNumber {
		s.m.did("redelivery ignored")
		return
	}
	s.m.did("redelivery asked for")
	s.pending[sequence] = true
}

// isForgotten reports whether nothing tells the lease e of an earlier delivery of an input. With shared delivery, e is nil.
func (s *modelServer) isForgotten(e *modelLease, sequence uint64) bool {
	return s.forgotten[sequence] && (e == nil || sequence > e.annotated)
}

// notice counts a zombie, which is a live worker that stores something although another worker has received the input or
// the partition since.
func (s *modelServer) notice(w *leaseWorker, sequence uint64) {
	var is bool
	if s.m.shared {
		is = s.sentTo[sequence] != nil && s.sentTo[sequence] != w
	} else {
		owner := s.metadata[annotationOwner]
		is = owner != "" && owner != w.id
	}
	if is && !w.dead {
		s.m.did("zombie")
	}
}

// modelConsumer is the part of a consumer's state that a server stores with a delay.
type modelConsumer struct {
	nextSequence, nextNumber   uint64
	floorSequence, floorNumber uint64
	pending                    map[uint64]bool        // whether AckWait has passed, by unacknowledged delivery
	counts                     map[uint64]int         // number of deliveries of each redelivered message
	recorded                   jetstream.SequenceInfo // last delivery that the server has recorded, and reports
}

func (c modelConsumer) clone() modelConsumer {
	c.pending, c.counts = maps.Clone(c.pending), maps.Clone(c.counts)
	return c
}

// forget marks all delivered inputs as forgotten by the consumer.
func (s *modelServer) forget() {
	for _, in := range s.inputs {
		s.forgotten[in] = s.forgotten[in] || in < s.nextSequence
	}
}

// reset makes the consumer deliver again from sequence on. Its first delivery is never lost. Otherwise an owner with
// as many earlier deliveries as were lost could not distinguish the next one from the expected one.
func (s *modelServer) reset(sequence uint64) {
	s.m.did("reset")
	s.m.note("the consumer is reset to %d", sequence)
	s.forget()
	s.modelConsumer = modelConsumer{
		nextSequence: sequence, nextNumber: 1, floorSequence: sequence - 1, pending: map[uint64]bool{}, counts: map[uint64]int{},
		recorded: jetstream.SequenceInfo{Stream: sequence - 1},
	}
	s.highest = sequence - 1
}

// restart simulates a crash of the server, which forgets all changes to the consumer since it stored its state.
func (s *modelServer) restart() {
	s.m.did("server restarted")
	s.m.note("the server restarts from floor %d, next %d", s.saved.floorSequence, s.saved.nextSequence)
	s.forget()
	s.modelConsumer, s.highest, s.pin = s.saved.clone(), s.saved.floorSequence, ""
	s.nextNumber, s.nextSequence = s.recorded.Consumer+1, s.recorded.Stream+1
	maps.DeleteFunc(s.pending, func(in uint64, _ bool) bool { return in > s.recorded.Stream })
	for _, p := range s.pulls {
		p.wire = nil
	}
}

// annotate replaces the metadata. It counts replacements of an owner while a payload or record was alone.
func (s *modelServer) annotate(metadata map[string]string) {
	before, after := s.metadata[annotationOwner], metadata[annotationOwner]
	if alone, err := strconv.ParseUint(s.metadata[annotationAlone], 10, 64); err == nil && before != "" && after != before {
		s.alone[alone]++
		s.m.did("replaced with a payload alone")
	}
	if r, ok := loneRecord(s.metadata[annotationAlone]); ok && before != "" && after != before {
		s.aloneRecords[r]++
		s.m.did("replaced with a record alone")
	}
	s.metadata = maps.Clone(metadata)
	s.m.note("annotations: %v", s.metadata)
}

// acknowledge handles an acknowledgement of all inputs up to sequence, like the server does.
func (s *modelServer) acknowledge(number, sequence uint64) {
	if sequence >= s.nextSequence || number <= s.floorNumber || sequence <= s.floorSequence {
		s.m.did("acknowledgement ignored")
		return
	}
	for _, in := range s.inputs {
		if in <= sequence && s.results[in] == "" {
			s.m.violate("input %d is acknowledged without a result, by an acknowledgement of %d", in, sequence)
		}
	}
	maps.DeleteFunc(s.pending, func(in uint64, _ bool) bool { return in <= sequence })
	s.floorNumber, s.floorSequence = number, sequence
	if s.floorSequence < s.highest {
		s.m.violate("the floor went back from %d to %d", s.highest, s.floorSequence)
	}
	s.highest = s.floorSequence
	s.m.did("acknowledged")
}

// receiver returns the pull that gets the next message, or nil if there is none. It pins a client if no client is
// pinned.
func (s *modelServer) receiver() *modelPull {
	s.expirePin()
	var asking []*modelPull
	for _, p := range s.pulls {
		switch {
		case !p.open:
		case p.leaving && s.m.random.IntN(50) == 0:
			p.open = false // the server has processed the unsubscription, although no client waited for that
		case p.request != "" && p.request != s.pin:
			p.lost() // status 423 makes the client request again without a pin
		case p.request == s.pin:
			asking = append(asking, p)
		}
	}
	if len(asking) == 0 {
		return nil
	}
	p := asking[s.m.random.IntN(len(asking))]
	if s.pin == "" {
		if s.m.calm && !s.m.readministered && p.leaving && p.e.holds {
			s.m.violate("%s has left, and is pinned", p.w.id)
		}
		s.pins++
		s.pin, s.pinSeen = fmt.Sprint("pin-", s.pins), time.Now()
		p.request, p.requestTurn = s.pin, p.requestTurn+1
		// The request was made at most pullFor ago.
		p.fresh = time.Now().Add(-time.Duration(s.m.random.Int64N(int64(pullFor))))
		s.m.did("pinned")
		s.m.note("%s is pinned", p.w.id)
	}
	return p
}

// deliver sends the next message to the pinned client. It sends redeliveries first.
func (s *modelServer) deliver() {
	sequence := uint64(0)
	for in, due := range s.pending {
		if due && (sequence == 0 || in < sequence) {
			sequence = in
		}
	}
	again := sequence != 0
	if !again {
		i, _ := slices.BinarySearch(s.inputs, s.nextSequence)
		if i == len(s.inputs) || len(s.pending) >= modelMaxPending {
			return
		}
		sequence = s.inputs[i]
	}
	p := s.receiver()
	if p == nil {
		return
	}
	if again {
		s.m.did("redelivered")
	} else {
		s.nextSequence = sequence + 1
	}
	s.pending[sequence] = false
	s.counts[sequence]++
	msg := &modelMessage{
		m: s.m, e: p.e, number: s.nextNumber, sequence: sequence, deliveries: s.counts[sequence], turn: p.requestTurn, sent: s.m.steps, since: time.Now(),
	}
	if s.nextNumber > s.floorNumber { // otherwise the server's store ignores the delivery
		s.recorded = jetstream.SequenceInfo{Consumer: s.nextNumber, Stream: s.nextSequence - 1}
	}
	s.nextNumber++
	s.m.did("delivered")
	s.skipped = msg.number > 1 && (s.m.faults || s.m.calm && !s.skipped) && s.m.random.IntN(25) == 0 // the client drops some messages
	if s.skipped {
		s.m.did("delivery lost")
		s.m.note("delivery %d of %d to %s is lost", msg.number, sequence, p.w.id)
		return
	}
	s.m.note("delivery %d of %d is sent to %s", msg.number, sequence, p.w.id)
	p.wire = append(p.wire, msg)
}

// modelMaxPending is the consumer's MaxAckPending.
const modelMaxPending = 30

// ackWaitPasses makes AckWait expire for a delivery, so the server redelivers it.
func (s *modelServer) ackWaitPasses() {
	var waiting []uint64
	for in, due := range s.pending {
		if !due {
			waiting = append(waiting, in)
		}
	}
	slices.Sort(waiting) // makes the history reproducible
	if len(waiting) > 0 {
		s.pending[waiting[s.m.random.IntN(len(waiting))]] = true
	}
}

// read returns the first message of the partition from a sequence on.
func (s *modelServer) read(from uint64) *jetstream.RawStreamMsg {
	i, _ := slices.BinarySearch(s.inputs, from)
	if i == len(s.inputs) {
		return nil
	}
	return &jetstream.RawStreamMsg{Subject: "0.ingest.a", Sequence: s.inputs[i], Time: s.m.input(s.inputs[i]).stored}
}

// modelMessage is a message as a client receives it.
type modelMessage struct {
	inflight.Incoming
	m          *leaseModel
	w          *leaseWorker // only with shared delivery
	e          *modelLease  // only with exclusive delivery
	number     uint64
	sequence   uint64
	deliveries int
	turn       uint64
	sent       int // step in which the server sent it; 0 if it was read from the stream
	since      time.Time
}

func (d *modelMessage) Data() []byte { return d.m.input(d.sequence).body }

func (d *modelMessage) Headers() nats.Header {
	h := nats.Header{modelSentHeader: {strconv.Itoa(d.sent)}}
	maps.Copy(h, d.m.input(d.sequence).header)
	return h
}

// modelSentHeader is a header of inputs, which results have too. It has the step in which the server sent the delivery.
const modelSentHeader = "Sent"

func (d *modelMessage) Subject() string { return "0.ingest.a" }

// Reply is called when a lease takes the memory of the message.
func (d *modelMessage) Reply() string {
	if d.e != nil {
		d.m.held(d.e, d)
	}
	return ""
}

func (d *modelMessage) HeaderBytes() int { return 0 }
func (d *modelMessage) Turn() uint64     { return d.turn }

func (d *modelMessage) AckToken() pull.AckToken { return d }

func (d *modelMessage) Since() time.Time { return d.since }

func (d *modelMessage) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{
		Stream: "IN", Sequence: jetstream.SequencePair{Stream: d.sequence, Consumer: d.number}, NumDelivered: uint64(d.deliveries),
		Timestamp: d.m.input(d.sequence).stored,
	}, nil
}

// errModelLost is the error of a dead worker's calls. errModelKilled means that a computed payload kills the worker.
var (
	errModelLost   = errors.New("the worker is dead")
	errModelKilled = errors.New("it kills the worker")

	// errModelUnread means that the server could not read a stored message.
	errModelUnread = errors.New("it is there")
)
