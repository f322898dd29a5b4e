package results

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestCarriedHeaders(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"Trace": true, "traceparent": true, "Statuses": true, "X-Status": true, "Description-Of": true, "Nats": true, "Natsy": true,
		"Status": false, "status": false, "STATUS": false, "Description": false, "dEscription": false,
		"Nats-": false, "nats-Msg-Id": false, "NATS-ROLLUP": false, "Nats-Anything-New": false, "millrace-reason": false,
		"Status ": false, " Status": false, "Status\t": false, "\rStatus": false, "\u017ftatus": false, "": false, "Sta\x00tus": false,
	} {
		if got := carried(key); got != want {
			t.Errorf("header %q is carried: %v, want %v", key, got, want)
		}
	}
}

func TestWithheldHeadersAreNamed(t *testing.T) {
	t.Parallel()
	got := Withheld(nats.Header{
		"Trace": {"kept"}, "Status": {"409", "100"}, "nats-ttl": {"1s"}, "na\xefve": {"yes"}, "Empty ": {""},
		HeaderReason: {"too_large"}, "Nats-Pin-Id": {"a secret"}, HeaderInput: {"Status: 404"},
	})
	want := []string{"Empty : ", "Status: 404", "Status: 409", "Status: 100", "nats-ttl: 1s", "na\xefve: yes"}
	if !slices.Equal(got, want) {
		t.Errorf("withheld lines %q, want %q", got, want)
	}
	if got := Withheld(nats.Header{"Trace": {"kept"}}); got != nil {
		t.Errorf("withheld lines %q of a header that is carried", got)
	}
}
