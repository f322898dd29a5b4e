package cliclient

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// documentsOf holds records that are JSON objects.
type documentsOf []string

func (d documentsOf) Source(i int) []byte  { return []byte(d[i]) }
func (d documentsOf) Kept(i, _ int) []byte { return nil }
func (d documentsOf) IsAnnotated(int) bool { return false }

// filtered returns the result of an input with four records. A filter has left out all records except the chosen ones.
func filtered(t *testing.T, f operator.Format, chosen ...uint32) *nats.Msg {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	documents, records := make(documentsOf, 4), make([][]byte, 4)
	for i := range records {
		records[i] = []byte("123456789")
		documents[i] = fmt.Sprintf(`{"id":%d,"text":"123456789"}`, i)
	}
	whole := table.Reference(ops, records, nil)
	whole.Keep(nil, documents)
	whole.Annotate("found")
	m := message("out.web", 7)
	if len(chosen) > 0 || f == operator.Arrow {
		m.Data = whole.Select(chosen).Append(nil, f, 0, len(chosen))
	}
	for name, value := range map[string]string{
		client.HeaderOperators: "crc32c", client.HeaderContentType: table.ContentType(f, true), client.HeaderRecords: fmt.Sprint(len(chosen)),
		client.HeaderFiltered: fmt.Sprint(4 - len(chosen)),
	} {
		m.Header.Set(name, value)
	}
	if f == operator.Annotated {
		m.Header.Set(client.HeaderAnnotation, "found")
	}
	return m
}

// printed returns what a printer prints about a message.
func (r *rig) printed(m *nats.Msg, payload int) string {
	r.Helper()
	r.publish(m)
	p, out, notes := r.printer()
	p.Payload = payload
	if err := p.Print(r.Ctx()); err != nil || notes.String() != "" {
		r.Errorf("%v, notes %q", err, notes)
	}
	return out.String()
}

// TestFilteredResults shows that in every format, the lines have the numbers of the records, or say how many records were left out.
func TestFilteredResults(t *testing.T) {
	t.Parallel()
	const head = `{"stream":"IN","sequence":7,"subject":"in.web",`
	for _, f := range []operator.Format{operator.JSON, operator.Arrow, operator.Binary, operator.Annotated} {
		want := ""
		for _, i := range []int{1, 3} {
			want += fmt.Sprintf(head+`"record":%d,"result":{"record":%d,"bytes":9,"crc32c":"e3069283"}}`+"\n", i, i)
		}
		if f == operator.Binary { // the format has no lengths
			want = strings.ReplaceAll(want, `"bytes":9,`, "")
		}
		if got := newRig(t).printed(filtered(t, f, 1, 3), 0); got != want {
			t.Errorf("%v prints\n%s, want\n%s", f, got, want)
		}
		if got, want := newRig(t).printed(filtered(t, f), 0), head+`"records":0,"filtered":4}`+"\n"; got != want {
			t.Errorf("%v without records prints\n%s, want\n%s", f, got, want)
		}
		single := filtered(t, f)
		single.Data = nil
		if got, want := newRig(t).printed(single, 0), head+`"records":0,"filtered":4}`+"\n"; got != want {
			t.Errorf("%v with an empty body prints\n%s, want\n%s", f, got, want)
		}
	}
}

// TestDocumentsOfAnnotatedResults shows that a document is printed on request, whole or in part.
func TestDocumentsOfAnnotatedResults(t *testing.T) {
	t.Parallel()
	const document = `{"id":2,"text":"123456789"}`
	for limit, want := range map[int]string{
		0: `"crc32c":"e3069283"}}`, 1000: `"crc32c":"e3069283"},"document":` + document + `}`, 10: `"document":"{\"id\":2,\"t","document_cut":true}`,
	} {
		got := newRig(t).printed(filtered(t, operator.Annotated, 2), limit)
		if !json.Valid([]byte(got)) || !strings.HasSuffix(got, want+"\n") {
			t.Errorf("with %d bytes, the line is %s, want %s", limit, got, want)
		}
	}
	broken := filtered(t, operator.Annotated, 2)
	broken.Header.Set(client.HeaderAnnotation, "other")
	r := newRig(t)
	r.publish(broken)
	p, _, notes := r.printer()
	if err := p.Print(r.Ctx()); err == nil || !strings.Contains(notes.String(), `the member "other" is missing`) {
		t.Errorf("without the member: %v, %s", err, notes)
	}
}
