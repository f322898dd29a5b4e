package inflight

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestANoteKeepsTheLatestFaults(t *testing.T) {
	note := "nonsense a:b:c a:b"
	for i := range 5 {
		note = AddFault(note, OperatorFault{Operator: "entropy", Fault: "device", At: time.Unix(0, int64(i))})
	}
	note = AddFault(note, OperatorFault{Operator: "other", Fault: "deadline", At: time.Unix(0, 9)})
	if want := "entropy:device:2 entropy:device:3 entropy:device:4 other:deadline:9"; note != want {
		t.Errorf("the note is %q, want %q", note, want)
	}
	faults := ParseFaults(note)
	if len(faults) != 4 || faults[3].Operator != "other" || faults[3].Fault != "deadline" || faults[3].At.UnixNano() != 9 || !faults[3].Earlier {
		t.Errorf("faults %+v", faults)
	}
	for i := range 100 {
		note = AddFault(note, OperatorFault{Operator: fmt.Sprint("op", i), Fault: "device", At: time.Unix(0, int64(i))})
	}
	if n := len(ParseFaults(note)); n != maxInNote || !strings.HasSuffix(note, "op99:device:99") {
		t.Errorf("%d faults of many operators: %s", n, note)
	}
}
