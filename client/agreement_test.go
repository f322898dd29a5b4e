package client_test

import (
	"testing"

	"millrace/client"
	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
)

// TestClientAgreesWithTheWorker compares the package's statuses, header names and content types with the worker's.
func TestClientAgreesWithTheWorker(t *testing.T) {
	for s := range record.Statuses {
		if got, want := client.Status(s).String(), record.Status(s).String(); got != want {
			t.Errorf("status %d is %q, but the worker calls it %q", s, got, want)
		}
	}
	for mine, its := range map[string]string{
		client.HeaderRecords: results.HeaderRecords, client.HeaderPart: results.HeaderPart,
		client.HeaderFirstRecord: results.HeaderFirstRecord, client.HeaderCut: results.HeaderCut, client.HeaderRecord: results.HeaderRecord, client.HeaderOperator: results.HeaderOperator,
	} {
		if mine != its {
			t.Errorf("header %q is %q in the worker", mine, its)
		}
	}
	for contentType, want := range map[string]frame.Framing{
		client.TypeNDJSON: frame.NewlineDelimited, client.TypeLength: frame.LengthDelimited,
		client.TypeVarint: frame.VarintLengthDelimited, client.TypeArrow: frame.Arrow,
	} {
		if got := frame.FramingOf(contentType); got != want {
			t.Errorf("%s is the framing %v, want %v", contentType, got, want)
		}
	}
}
