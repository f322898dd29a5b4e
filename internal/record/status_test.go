package record

import "testing"

func TestStatusesKeepTheirNumbersAndNames(t *testing.T) {
	for number, want := range map[Status]string{0: "ok", 1: "null", 2: "too_large", 3: "operator_error", 4: "device_fault", 5: "no_field", 6: "invalid_json", 7: "filter_error", 8: "Status(8)"} {
		if got := number.String(); got != want {
			t.Errorf("status %d is %q, want %q", uint8(number), got, want)
		}
	}
}

func TestOnlyStatusesWithDeadLettersHaveFailed(t *testing.T) {
	for s, want := range map[Status]bool{OK: false, Null: false, TooLarge: true, OperatorError: true, DeviceFault: true, NoField: true, InvalidJSON: true, FilterError: true} {
		if got := s.Failed(); got != want {
			t.Errorf("%v: failed is %t, want %t", s, got, want)
		}
	}
}

// TestMessagesDifferAndNeedNoQuoting: messages can be written into JSON without escapes.
func TestMessagesDifferAndNeedNoQuoting(t *testing.T) {
	seen := map[string]Status{}
	for s := OK; s < Statuses; s++ {
		text := s.Message()
		if other, ok := seen[text]; ok || text == "" {
			t.Errorf("%v has the message %q of %v", s, text, other)
		}
		seen[text] = s
		for _, c := range []byte(text) {
			if c < ' ' || c > '~' || c == '"' || c == '\\' {
				t.Errorf("%v: byte %q in a message", s, c)
			}
		}
	}
}
