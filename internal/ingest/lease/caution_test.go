package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// TestALeaseIsCautiousUpToTheLastQuarantinedPayload shows that batches are small up to the last quarantined payload,
// and then of normal size.
func TestALeaseIsCautiousUpToTheLastQuarantinedPayload(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	l.caution.due = caution{Until: 10, Deaths: 1}
	large := l.pipe.BatchPayloads()
	small := l.caution.due.batchPayloads(large)
	l.acks.upTo = 9
	if due, maximum := l.caution.bound(large); !due || maximum != small {
		t.Errorf("with a quarantined payload left: cautious %t, %d payloads per batch; want so, and %d", due, maximum, small)
	}
	l.acks.upTo = 10
	if due, maximum := l.caution.bound(large); due || maximum != large {
		t.Errorf("behind the last quarantined payload: cautious %t, %d payloads per batch; want not, and %d", due, maximum, large)
	}
}

// TestALeaseRelaxesAfterItsQuarantinedPayloads shows that a lease becomes less cautious and may compare payloads
// again. First as many payloads must succeed as were in a batch that killed a worker.
func TestALeaseRelaxesAfterItsQuarantinedPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	before := r.partitionConfig(0)
	before.Metadata[annotationCaution] = caution{Until: 1000, Deaths: 2}.String()
	before.Metadata[annotationBeside] = "5"
	r.changePartition(before)
	l := r.idleLease()
	info, err := l.consumer.Info(r.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.caution.takeOver(r.Ctx(), info, l.pipe.BatchPayloads(), false); err != nil {
		t.Fatal(err)
	}
	quarantined := l.caution.due.quarantined(l.pipe.BatchPayloads())
	for _, c := range []struct{ came, deaths int }{{quarantined - 1, 2}, {1, 1}} {
		if err := l.caution.relax(r.Ctx(), c.came, l.pipe.BatchPayloads()); err != nil {
			t.Fatal(err)
		}
		left := r.partitionConfig(0).Metadata
		marked := parseCaution(left[annotationCaution])
		if _, beside := left[annotationBeside]; beside != (c.deaths == 2) {
			t.Errorf("with %d deaths, the consumer says that a payload was compared: %v", c.deaths, beside)
		}
		if l.caution.due.Deaths != c.deaths || marked.Deaths != c.deaths {
			t.Errorf("after %d more quarantined payloads it counts %d deaths, and the consumer says %d; want %d", c.came, l.caution.due.Deaths, marked.Deaths, c.deaths)
		}
	}
}

// TestOnlyTheFirstPayloadIsCondemned shows that only the first payload is given up. It was alone on the device at
// each of the last deaths. If the acknowledgements before a later payload were lost, that one was alone only at the
// last death.
func TestOnlyTheFirstPayloadIsCondemned(t *testing.T) {
	t.Parallel()
	const floor = 3
	enough := caution{Floor: floor, Trials: 1}
	for ; !enough.giveUp(); enough.Trials++ {
	}
	for _, c := range []struct {
		name                      string
		accused, sequence, behind uint64
		fewer                     int // number of deaths below the limit
		want                      bool
	}{
		{"the first payload", 5, 5, floor, 0, true},
		{"after one death less", 5, 5, floor, 1, false},
		{"a later payload", 5, 5, floor + 1, 0, false},
		{"another payload", 5, 6, floor, 0, false},
		{"no payload was alone", 0, 0, floor, 0, false},
	} {
		p := &precaution{accused: c.accused, due: enough}
		p.due.Trials -= c.fewer
		if got := p.condemns(c.sequence, c.behind); got != c.want {
			t.Errorf("%s: condemned %v, want %v", c.name, got, c.want)
		}
	}
}

// TestASuspectIsTheSameMessage shows that a quarantined payload is identified by sequence and storage time. A
// recreated stream reuses the sequence for another message.
func TestASuspectIsTheSameMessage(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 5)
	p := &precaution{suspect: suspect{sequence: 7, stored: stored.UnixNano()}}
	for _, c := range []struct {
		d    inflight.Delivery
		want bool
	}{
		{inflight.Delivery{Sequence: 7, Stored: stored}, true}, {inflight.Delivery{Sequence: 8, Stored: stored}, false},
		{inflight.Delivery{Sequence: 7, Stored: stored.Add(time.Nanosecond)}, false},
	} {
		if got := p.suspects(&c.d); got != c.want {
			t.Errorf("input %d, stored at %v, is the suspect: %v, want %v", c.d.Sequence, c.d.Stored, got, c.want)
		}
	}
}

// TestInputsReadFromTheStreamAreNumberedInOrder shows that inputs that are read from the stream get consecutive
// consumer sequences. The server accepts an acknowledgement only if its number exceeds the last one. No number
// exceeds that of the last delivery.
func TestInputsReadFromTheStreamAreNumberedInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n, acknowledged, last = 4, 7, 10
	r.publish(n, document)
	l := r.idleLease()
	l.acks.begin(jetstream.SequenceInfo{Consumer: acknowledged})
	info := &jetstream.ConsumerInfo{
		Delivered:      jetstream.SequenceInfo{Consumer: last, Stream: n},
		PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: "pin"}},
	}
	l.partition.pinned = func() string { return "pin" }
	if err := l.partition.fill(r.Ctx(), r.Ctx(), info, 0); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		d, _ := l.out.Get()
		meta, err := d.Msg.AckToken().(*pull.Message).Metadata()
		if err != nil {
			t.Fatal(err)
		}
		want := min(acknowledged+1+i, last)
		if d.Sequence != i+1 || meta.Sequence.Stream != i+1 || d.ConsumerSequence != want || meta.Sequence.Consumer != want {
			t.Errorf("input %d has number %d and is acknowledged as %+v, want number %d", d.Sequence, d.ConsumerSequence, meta.Sequence, want)
		}
	}
}

// TestTakeOverTellsADeathFromACut shows that a disconnected worker that could not end its lease is not counted as
// dead.
func TestTakeOverTellsADeathFromACut(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(1, document)
	l := r.idleLease()
	for _, c := range []struct {
		name        string
		annotations map[string]string
		deaths      int
	}{
		{"nobody", nil, 0},
		{"another that died", map[string]string{annotationOwner: "another"}, 1},
		{"itself, cut off", map[string]string{annotationOwner: l.m.id, annotationAlone: "1"}, 0},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		info, err := l.consumer.Info(r.Ctx())
		if err != nil {
			t.Fatal(err)
		}
		info.Delivered.Stream = 1
		if err := l.caution.takeOver(r.Ctx(), info, l.pipe.BatchPayloads(), false); err != nil {
			t.Fatal(err)
		}
		if l.caution.due.Deaths != c.deaths {
			t.Errorf("after %s: %d deaths, want %d", c.name, l.caution.due.Deaths, c.deaths)
		}
		if owner := r.partitionConfig(0).Metadata[annotationOwner]; owner != l.m.id {
			t.Errorf("after %s the owner is %q, want %q", c.name, owner, l.m.id)
		}
	}
}

// TestAnAcknowledgementThatTheServerNeverGot shows that the last acknowledgement is repeated until the server has it,
// with the number of the consumer's last delivery. It is not repeated while inputs are unsettled, because a later
// acknowledgement covers more.
func TestAnAcknowledgementThatTheServerNeverGot(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	sent := &sentReceipts{leaseServer: l.server}
	l.server = sent
	l.begun, l.acks.last, l.acks.upTo = true, &sentReceipt{}, 3
	l.acks.caughtUp(jetstream.SequenceInfo{Consumer: 7, Stream: 4})
	at := func(floor uint64) {
		l.acks.repeatLast(t.Context(), &jetstream.ConsumerInfo{
			AckFloor: jetstream.SequenceInfo{Stream: floor}, Delivered: jetstream.SequenceInfo{Consumer: 7, Stream: 4},
		})
	}
	for _, c := range []struct {
		name  string
		floor uint64
		open  int
		want  string
	}{
		{"with the acknowledgement at the server", 3, 0, "[]"},
		{"without it", 2, 0, "[3/7]"},
		{"still without it", 2, 0, "[3/7 3/7]"},
		{"without it, and with an open input", 2, 1, "[3/7 3/7]"},
	} {
		if c.open > 0 {
			l.acks.takeStored(5, 8)
		}
		if at(c.floor); fmt.Sprint(sent.all) != c.want {
			t.Errorf("%s: sent %v, want %s", c.name, sent.all, c.want)
		}
	}
}

// sentReceipts is a leaseServer that records the acknowledgements of its receipts.
type sentReceipts struct {
	leaseServer
	all []string
}

func (s *sentReceipts) receipt(sequence, number uint64) pull.AckToken {
	return &sentReceipt{s: s, name: fmt.Sprint(sequence, "/", number)}
}

type sentReceipt struct {
	pull.AckToken
	s    *sentReceipts
	name string
}

func (r *sentReceipt) Ack() error { r.s.all = append(r.s.all, r.name); return nil }

// TestCautionFindsWhatKills kills a worker whenever a batch contains a lethal payload. All other payloads are
// acknowledged, lethal ones are given up, and the number of deaths is limited.
func TestCautionFindsWhatKills(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		const limit = 8192
		n := uint64(1 + random.IntN(3*limit))
		kills := map[uint64]bool{}
		for range 1 + random.IntN(4) {
			kills[1+random.Uint64N(n)] = true
		}
		givenUp := map[uint64]bool{}
		var kept caution // as stored in the consumer's metadata
		died := false
		deaths, floor, delivered := 0, uint64(0), uint64(0)
		for floor < n {
			c := kept.begin(floor)
			if died {
				c = kept.afterDeath(floor, delivered, kept.isAlone())
				deaths++
			}
			if kept = parseCaution(c.String()); kept != c {
				t.Fatalf("%v came back as %v", c, kept)
			}
			delivered = max(delivered, min(n, floor+2*limit)) // prefetched payloads
			floor, kept, died = leaseOf(kept, floor, n, limit, kills, givenUp)
			if deaths > 100 {
				t.Fatalf("%d payloads, %v kill: more than 100 deaths", n, kills)
			}
		}
		if !maps.Equal(givenUp, kills) {
			t.Fatalf("%d payloads, %v kill, and given up are %v", n, kills, givenUp)
		}
		if limit := (alone + trials + 2) * len(kills); deaths > limit {
			t.Fatalf("%d payloads, %v kill: %d deaths, want at most %d", n, kills, deaths, limit)
		}
	}
}

// TestCautionBlamesNoPayloadForOtherDeaths also kills workers at any point for other reasons, far more often than a
// payload is tried alone. Only lethal payloads are given up.
func TestCautionBlamesNoPayloadForOtherDeaths(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	others := 0
	for round := range 300 {
		const limit = 8192
		n := uint64(1 + random.IntN(limit))
		kills := map[uint64]bool{}
		for range round % 3 {
			kills[1+random.Uint64N(n)] = true
		}
		givenUp := map[uint64]bool{}
		var kept caution
		died, alone := false, false
		for floor, lives := uint64(0), 0; floor < n; lives++ {
			c := kept.begin(floor)
			if died {
				c = kept.afterDeath(floor, n, alone)
			}
			kept = parseCaution(c.String())
			if end := floor + random.Uint64N(n-floor+1); random.IntN(3) > 0 && lives < 50 {
				// The worker dies for another reason after it has processed the payloads up to end. A payload that
				// ran alone has left the device by then.
				floor, kept, died = leaseOf(kept, floor, end, limit, kills, givenUp)
				alone = died && kept.isAlone()
				died = true
				others++
				continue
			}
			floor, kept, died = leaseOf(kept, floor, n, limit, kills, givenUp)
			alone = died && kept.isAlone()
			if lives > 200 {
				t.Fatalf("%d payloads, %v kill: more than 200 lives", n, kills)
			}
		}
		if !maps.Equal(givenUp, kills) {
			t.Fatalf("%d payloads, %v kill, and given up are %v", n, kills, givenUp)
		}
	}
	if others < 1000 {
		t.Errorf("%d other deaths: nothing was shown", others)
	}
}

// leaseOf processes payloads from floor to n, or until a payload kills it. It returns the new floor, the stored
// caution, and whether a payload killed it.
func leaseOf(c caution, floor, n uint64, maximum int, kills, givenUp map[uint64]bool) (uint64, caution, bool) {
	kept, left := c, c.quarantined(maximum)
	for floor < n {
		if c.giveUp() && floor == c.Floor {
			givenUp[floor+1] = true
			floor++
			left--
			continue
		}
		size := maximum
		if c.isDue(floor) {
			size = c.batchPayloads(maximum)
		}
		end := min(n, floor+uint64(size))
		for s := floor + 1; s <= end; s++ {
			if kills[s] {
				return floor, kept, true
			}
		}
		left -= int(end - floor)
		floor = end
		if c.isDue(floor) && left <= 0 {
			c = c.relaxed(floor)
			kept, left = c, c.quarantined(maximum)
		}
	}
	return floor, kept, false
}

func TestCautionGetsSmaller(t *testing.T) {
	var sizes []int
	for deaths := range 6 {
		sizes = append(sizes, caution{Deaths: deaths}.batchPayloads(8192))
	}
	if want := []int{8192, 512, 32, 2, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
	for _, bad := range []string{"", "1", "floor=x until=1 deaths=1 trials=1", "floor=1 until=1 deaths=-1 trials=0"} {
		if c := parseCaution(bad); c != (caution{}) {
			t.Errorf("%q reads as %v", bad, c)
		}
	}
}

// TestCautionForgivesWithALeaseThatEndedWell shows that deaths before a properly ended lease aren't added to deaths
// after it.
func TestCautionForgivesWithALeaseThatEndedWell(t *testing.T) {
	c := caution{Floor: 10, Until: 20, Deaths: alone, Trials: trials - 1}
	if !c.afterDeath(10, 20, true).giveUp() {
		t.Error("one death more of a payload alone, and it is not given up")
	}
	began := c.begin(10)
	if want := (caution{Floor: 10, Until: 20, Deaths: alone}); began != want {
		t.Errorf("after a lease that ended well: %v, want %v", began, want)
	}
	if began.afterDeath(10, 20, true).giveUp() {
		t.Errorf("given up after the first of %d deaths", trials)
	}
}
