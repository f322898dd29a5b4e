package statelog

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/ingest/store"
)

// modelStream is a result stream that injects faults. It implements store.Markers and Source. Each result has the number of the
// decisions on the records of an input.
type modelStream struct {
	t      *testing.T
	random *rand.Rand
	way    store.Way
	faults bool
	stored []modelMessage // the message with sequence n is stored[n-1]
	late   []func()       // requests that arrive later
	open   [][]modelMessage
	crash  func() // ends the worker at its next fault; may be nil

	decided   []decision     // indexed by the number in a result
	committed []int          // numbers of the results that markers cover, in the order of the markers
	happened  map[string]int // for the test's minima
}

type modelMessage struct {
	subject string
	header  nats.Header
	data    []byte
	purged  bool
	marker  *store.Marker
	covers  []int // with a marker: numbers of the results of the commit
}

// decision has the values of the records of one input.
type decision struct {
	positions []device.Position
	values    [][]byte
}

const (
	markers = "commits.RESULTS.IN.millrace.0"
	results = "results"
)

var errModel = errors.New("no answer")

func (s *modelStream) last() (at uint64) {
	for i, m := range s.stored {
		if m.marker != nil {
			at = uint64(i + 1)
		}
	}
	return at
}

type write struct {
	way      store.Way
	expected uint64
	messages []modelMessage
}

// apply stores the first messages of a request as a server does. arriving is their number. The remaining messages of a fast batch may arrive later,
// even after messages of the next owner. A stream that is full for a moment refuses a message of a fast batch and stores later ones.
func (s *modelStream) apply(w write, arriving int) (uint64, error) {
	switch last := s.last(); {
	case last != w.expected:
		return 0, &store.WrongLastError{Last: last}
	case w.way != store.Fast && arriving < len(w.messages):
		return 0, errModel
	}
	refused := false
	for _, m := range w.messages[:arriving] {
		if s.faults && w.way == store.Fast && s.random.IntN(16) == 0 {
			refused = true
			continue
		}
		s.store(m)
	}
	if arriving < len(w.messages) {
		s.open = append(s.open, w.messages[arriving:])
	}
	if refused || arriving < len(w.messages) {
		return 0, errModel
	}
	return uint64(len(s.stored)), nil
}

func (s *modelStream) store(m modelMessage) {
	s.stored = append(s.stored, m)
	s.committed = append(s.committed, m.covers...)
}

// proceed stores more messages of fast batches. It drops some of the batches.
func (s *modelStream) proceed() {
	s.open = slices.DeleteFunc(s.open, func(rest []modelMessage) bool { return len(rest) == 0 || s.random.IntN(8) == 0 })
	for i := range s.open {
		for len(s.open[i]) > 0 && s.random.IntN(3) == 0 {
			s.store(s.open[i][0])
			s.open[i] = s.open[i][1:]
		}
	}
}

// Write implements store.Markers.
func (s *modelStream) Write(_ context.Context, way store.Way, expected uint64, msgs []*nats.Msg, m *store.Marker) (uint64, error) {
	copied := *m
	marker, batch := modelMessage{subject: markers, marker: &copied}, []modelMessage(nil)
	for _, each := range msgs {
		batch = append(batch, modelMessage{subject: each.Subject, header: each.Header, data: each.Data})
		if each.Subject == results {
			number, err := strconv.Atoi(string(each.Data))
			if err != nil {
				s.t.Fatal(err)
			}
			marker.covers = append(marker.covers, number)
		}
	}
	if way != store.Fast {
		return s.send(write{way, expected, append(batch, marker)})
	}
	if len(batch) > 0 {
		if _, err := s.send(write{way, expected, batch}); err != nil {
			return 0, err
		}
	}
	return s.send(write{store.Atomic, expected, []modelMessage{marker}})
}

// send sends a request. Some late requests arrive before it.
func (s *modelStream) send(w write) (uint64, error) {
	for len(s.late) > 0 && s.random.IntN(2) == 0 {
		i := s.random.IntN(len(s.late))
		arrive := s.late[i]
		s.late = slices.Delete(s.late, i, i+1)
		arrive()
	}
	s.proceed()
	all, fate := len(w.messages), s.random.IntN(16)
	if !s.faults {
		fate = 15
	}
	if s.crash != nil && fate < 4 {
		s.crash()
	}
	switch fate {
	case 0:
		return 0, errModel // the request is lost
	case 1:
		_, _ = s.apply(w, all)
		return 0, errModel // the answer is lost
	case 2:
		_, _ = s.apply(w, s.random.IntN(all))
		return 0, errModel // only a part arrives
	case 3:
		s.late = append(s.late, func() { _, _ = s.apply(w, 1+s.random.IntN(all)) })
		return 0, errModel
	}
	return s.apply(w, all)
}

// fail begins a request that reads or purges, and returns its error.
func (s *modelStream) fail() error {
	s.proceed()
	if s.faults && s.random.IntN(16) == 0 {
		return errModel
	}
	return nil
}

// Last implements store.Markers.
func (s *modelStream) Last(context.Context) (store.StoredMarker, error) {
	err, at := s.fail(), s.last()
	if err != nil || at == 0 {
		return store.StoredMarker{}, err
	}
	return store.StoredMarker{Marker: *s.stored[at-1].marker, At: at}, nil
}

// Next implements store.Markers. The model's owners don't look for results that no marker covers, because the model checks results with a
// marker only.
func (s *modelStream) Next(context.Context, uint64, string) (uint64, nats.Header, error) {
	return 0, nil, s.fail()
}

// Begun implements store.Markers.
func (s *modelStream) Begun(context.Context, uint64, uint64) (uint64, error) { return 0, s.fail() }

// Read implements Source.
func (s *modelStream) Read(_ context.Context, after, before uint64) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for sequence := after + 1; sequence < before && sequence <= uint64(len(s.stored)); sequence++ {
			m := s.stored[sequence-1]
			if m.subject != Subject(markers) || m.purged {
				continue
			}
			if err := s.fail(); err != nil {
				yield(Stored{}, err)
				return
			}
			if entry, err := Parse(sequence, m.header, m.data); !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// Purge implements Source.
func (s *modelStream) Purge(_ context.Context, below uint64) error {
	if err := s.fail(); err != nil {
		return err
	}
	for i := range s.stored[:below-1] {
		if m := &s.stored[i]; m.subject == Subject(markers) && !m.purged {
			m.purged = true
			s.happened["purged"]++
		}
	}
	return s.fail()
}
