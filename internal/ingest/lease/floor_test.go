package lease

import (
	"testing"
)

func TestFloorAcknowledgesOnlyWhatIsSettled(t *testing.T) {
	var f floor
	for i, sequence := range []uint64{10, 11, 15, 16} { // the sequences between belong to other partitions
		if v := f.take(uint64(i+1), sequence); v != newInput {
			t.Fatalf("delivery %d: %v", i+1, v)
		}
	}
	f.done(11)
	f.done(15)
	if s, ok := f.acknowledge(); ok {
		t.Fatalf("acknowledged %d with 10 open", s)
	}
	if v := f.take(5, 11); v != knownInput {
		t.Fatalf("a redelivery is %v", v)
	}
	f.done(10)
	if s, ok := f.acknowledge(); !ok || s != 15 {
		t.Fatalf("acknowledged %d, %v; want 15", s, ok)
	}
	if f.open() != 1 {
		t.Fatalf("%d are open, want 1", f.open())
	}
	f.done(16)
	if s, ok := f.acknowledge(); !ok || s != 16 {
		t.Fatalf("acknowledged %d, %v; want 16", s, ok)
	}
}

// TestFloorMissesNoDelivery shows that no new delivery is taken after a missing number until the stream has been
// read. This holds even if the next delivery is already known.
func TestFloorMissesNoDelivery(t *testing.T) {
	f := newFloor(9)
	if v := f.take(2, 12); v != gap {
		t.Fatalf("the second delivery, first: %v", v)
	}
	for _, s := range []uint64{10, 11, 12, 13} {
		f.add(s)
	}
	f.caughtUp(3)
	for i, c := range []struct {
		number, sequence uint64
		want             verdict
	}{
		{2, 12, heldInput}, {3, 13, heldInput}, // these were in transit
		{4, 15, newInput},
		{5, 11, knownInput}, // redelivered
		{7, 12, knownInput}, // after a missing number
		{8, 18, gap},        // the missing one may be 16 or 17
		{8, 18, gap},        // and is not forgotten
	} {
		if v := f.take(c.number, c.sequence); v != c.want {
			t.Fatalf("%d: delivery %d of %d is %v, want %v", i, c.number, c.sequence, v, c.want)
		}
	}
	f.add(17)
	f.caughtUp(8)
	if v := f.take(8, 18); v != gap {
		t.Fatalf("a delivery that was not in the stream: %v", v)
	}
	f.add(18)
	if v := f.take(9, 19); v != newInput || f.highest != 19 || f.delivered != 9 {
		t.Fatalf("the next delivery: %v, up to %d, number %d", v, f.highest, f.delivered)
	}
	for _, s := range []uint64{10, 12, 13, 15} {
		f.done(s)
	}
	if s, ok := f.acknowledge(); !ok || s != 10 {
		t.Fatalf("acknowledged %d, %v; want 10, since 11 is open", s, ok)
	}
	f.done(11)
	if s, ok := f.acknowledge(); !ok || s != 15 || f.open() != 3 {
		t.Fatalf("acknowledged %d, %v, and %d are open; want 15, with 17 and two others open", s, ok, f.open())
	}
}

func TestFloorRefusesWhatIsNotOpen(t *testing.T) {
	for name, settle := range map[string]func(f *floor){
		"never taken":  func(f *floor) { f.done(9) },
		"acknowledged": func(f *floor) { f.done(5); f.acknowledge(); f.done(5) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			var f floor
			f.take(1, 5)
			settle(&f)
		})
	}
}
