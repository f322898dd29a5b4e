package results

import (
	"errors"
	"strings"
	"testing"
)

func TestHeaderTextIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	got := headerText(errors.New("one\r\ntwo" + strings.Repeat("x", 1000)))
	if len(got) != 512 || !strings.HasPrefix(got, "one  twoxxx") {
		t.Errorf("%d bytes, %q", len(got), got[:20])
	}
}
