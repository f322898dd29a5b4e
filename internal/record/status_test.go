package record_test

import (
	"testing"

	"millrace/internal/record"
)

func TestStatusesHaveTheNamesAndNumbersOfTheContract(t *testing.T) {
	for number, name := range []string{"ok", "null", "too_large", "failed", "unknown"} {
		if got := record.Status(number).String(); got != name {
			t.Errorf("Status(%d) is called %q, want %q", number, got, name)
		}
	}
	if record.OK != 0 || record.Null != 1 || record.TooLarge != 2 || record.Failed != 3 {
		t.Error("a status has another number than results have")
	}
}
