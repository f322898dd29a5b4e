package results

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// letterCase describes an input that becomes a dead letter, as a whole or for each of its records.
type letterCase struct {
	name   string
	bytes  int // bytes of the payload, or of each record
	header int // bytes of the input's own headers
	framed bool
	why    Reason
}

// letterCases returns cases of every size around the limits of a server with the given max_payload. Some have headers
// near the 64 KiB that JetStream accepts.
func letterCases(maxPayload int) (all []letterCase) {
	n := 0
	reasons := []Reason{TooLarge, MaxDeliver, OperatorError, DeviceFault, InvalidFrame, InvalidEncoding}
	for _, header := range []int{0, 600, maxPayload / 2, maxPayload - 100, 64<<10 - 40} {
		for _, bytes := range []int{0, 1, maxPayload / 4, maxPayload - 1100, maxPayload - 100, maxPayload, maxPayload + 1, 3 * maxPayload} {
			for _, framed := range []bool{false, true} {
				c := letterCase{bytes: bytes, header: header, framed: framed, why: reasons[n%len(reasons)]}
				if n++; framed {
					c.why = OperatorError
				}
				c.name = fmt.Sprintf("%s, %d bytes, headers of %d bytes, framed %v", c.why, bytes, header, framed)
				all = append(all, c)
			}
		}
	}
	return all
}

type countsLeftOut struct {
	nobody
	n atomic.Int64
}

func (c *countsLeftOut) PayloadLeftOut() { c.n.Add(1) }

// letterRig returns a rig whose server has the given max_payload, with provisioned streams, and a writer.
func letterRig(t *testing.T, exclusive bool, maxPayload int32) (*rig, *Writer, *countsLeftOut) {
	t.Helper()
	r := &rig{natstest.New(t, func(o *server.Options) { o.MaxPayload = maxPayload })}
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	counts := &countsLeftOut{}
	o := Options{
		Topology: topology.Topology{
			Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", ResultStream: "RESULTS", ResultPrefix: "results",
			DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true, Exclusive: exclusive, Partitions: 1,
			AckWait: time.Minute, MaxDeliver: 5, MaxAckPending: 100,
		},
		Operators: ops, Format: operator.JSON, AckWait: time.Minute, Log: r.Log.Logger(), Observer: counts, Progress: func() {},
	}
	if err := topology.Provision(r.Ctx(), r.JS, o.Topology, o.Log); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(r.Ctx(), natsconn.Connections{r.NC}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, w, counts
}

// letterInput returns a case's input with the given sequence. It compresses frames, so the server accepts the
// message.
func (r *rig) letterInput(w *Writer, c letterCase, sequence uint64) inflight.Delivery {
	r.Helper()
	h := nats.Header{"Note": {strings.Repeat("n", max(c.header-len("NATS/1.0\r\nNote: \r\n\r\n"), 0))}}
	line := bytes.Repeat([]byte{'x'}, c.bytes)
	if !c.framed {
		d := r.input(line)
		d.Msg, d.Sequence = modelMessage{body: line, header: h}, sequence
		return d
	}
	d := r.failedFrame(w, h, append(append(bytes.Clone(line), '\n'), append(line, '\n')...))
	d.Msg, d.Sequence = modelMessage{body: []byte("compressed"), header: h}, sequence
	return d
}

// publishCase stores the dead letters of a case, with commits if they are not nil.
func (r *rig) publishCase(w *Writer, commits *Commits, c letterCase, d *inflight.Delivery) error {
	cause := errors.New("no")
	switch {
	case commits != nil && c.framed:
		return commits.storeLetters(r.Ctx(), []*deadLetter{w.newRecordLetter(d, 0), w.newRecordLetter(d, 1)}, new(partials))
	case commits != nil:
		return commits.PublishDeadLetter(r.Ctx(), d, c.why, cause)
	case c.framed:
		return frameWriter{w}.storeRecordLetters(r.Ctx(), d, new(partials))
	}
	return w.PublishDeadLetter(r.Ctx(), d, c.why, cause)
}

// TestEveryDeadLetterIsStored shows that the server accepts a dead letter of any size and headers in one of its
// forms. It has its payload, or names the message with the payload. If no message may be that large, it has the
// digest and is counted.
func TestEveryDeadLetterIsStored(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		for _, maxPayload := range []int{8 << 10, 100 << 10} {
			if testing.Short() && maxPayload > 8<<10 {
				continue // takes long, and shows nothing new about races
			}
			t.Run(fmt.Sprintf("exclusive=%v, %d", exclusive, maxPayload), func(t *testing.T) {
				t.Parallel()
				r, w, counts := letterRig(t, exclusive, int32(maxPayload))
				commits, err := OpenCommits(r.Ctx(), w, Partition{Owner: "a"})
				if err != nil || (commits != nil) != exclusive {
					t.Fatal(commits, err)
				}
				leftOut := int64(0)
				for n, c := range letterCases(maxPayload) {
					d := r.letterInput(w, c, uint64(n+1))
					if err := r.publishCase(w, commits, c, &d); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					if !c.framed && c.bytes > maxPayload {
						leftOut++
					}
				}
				r.wantLetters(letterCases(maxPayload), maxPayload)
				if got := counts.n.Load(); got != leftOut {
					t.Errorf("%d dead letters without payload are counted, want %d", got, leftOut)
				}
			})
		}
	}
}

func (r *rig) wantLetters(cases []letterCase, maxPayload int) {
	r.Helper()
	s := r.Stream("RESULTS_DEADLETTER")
	found, inputs := map[int][]string{}, map[int]int{}
	for at := uint64(1); at <= s.CachedInfo().State.LastSeq; at++ {
		m, err := s.GetMsg(r.Ctx(), at)
		if err != nil {
			r.Fatal(err)
		}
		sequence, _ := strconv.Atoi(m.Header.Get(HeaderSequence))
		if id, input := strings.CutSuffix(m.Header.Get(jetstream.MsgIDHeader), "#message"); input {
			of, _ := strconv.Atoi(strings.Split(id, ":")[1])
			inputs[of]++
		} else if sequence > 0 && !strings.HasPrefix(m.Subject, "commits") {
			// The message is neither a payload without headers nor a marker.
			c := cases[sequence-1]
			found[sequence] = append(found[sequence], m.Header.Get(HeaderRecord))
			r.wantLetter(c, maxPayload, s, m)
		}
	}
	for n, c := range cases {
		want := []string{""}
		if c.framed {
			want = []string{"0", "1"}
		}
		if got := found[n+1]; !slices.Equal(got, want) {
			r.Errorf("%s: the dead letters of records %q are stored, want %q", c.name, got, want)
		}
		if inputs[n+1] > 1 {
			r.Errorf("%s: the input is stored %d times", c.name, inputs[n+1])
		}
	}
}

func (r *rig) wantLetter(c letterCase, maxPayload int, s jetstream.Stream, m *jetstream.RawStreamMsg) {
	r.Helper()
	payload := bytes.Repeat([]byte{'x'}, c.bytes)
	if got := m.Header.Get(HeaderReason); got != string(c.why) {
		r.Errorf("%s: the reason is %s", c.name, got)
	}
	omitted, more, _ := strings.Cut(m.Header.Get(HeaderOmitted), ",")
	if told := omitted == "headers" || more == "headers"; told == (m.Header["Note"] != nil) {
		r.Errorf("%s: omits %q and %q, and has the input's headers: %v", c.name, omitted, more, !told)
	}
	where := m.Header.Get(HeaderPayloadSequence)
	body := m.Data
	if where != "" {
		at, err := strconv.ParseUint(where, 10, 64)
		if err != nil {
			r.Fatal(err)
		}
		apart, err := s.GetMsg(r.Ctx(), at)
		if err != nil {
			r.Fatalf("%s: message %s: %v", c.name, where, err)
		}
		body = apart.Data
	}
	switch {
	case omitted == "record" && where != "" && c.framed && c.bytes > maxPayload:
		payload = []byte("compressed")
	case omitted == "payload" && where == "" && !c.framed && c.bytes > maxPayload:
		if m.Header.Get(HeaderPayloadDigest) != digest(payload) || m.Header.Get(HeaderPayloadBytes) != strconv.Itoa(c.bytes) {
			r.Errorf("%s: the dead letter has %v", c.name, m.Header)
		}
		payload = nil
	case c.bytes > maxPayload:
		r.Errorf("%s: omits %q and names message %q", c.name, omitted, where)
	}
	if !bytes.Equal(body, payload) {
		r.Errorf("%s: omits %q, and the body has %d bytes", c.name, omitted, len(body))
	}
}
