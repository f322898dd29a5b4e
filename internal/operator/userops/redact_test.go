//go:build cgo

package userops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator"
)

const redact = "../../../examples/operators/redact/redact.cu"

// number matches the numbers that redact masks.
var number = regexp.MustCompile(`[0-9](?:[ -]?[0-9])*`)

// redacted is the independent reference of redact.
func redacted(payload []byte, minimum, keep int) (masked int, text []byte) {
	text = number.ReplaceAllFunc(payload, func(n []byte) []byte {
		digits := 0
		for _, c := range n {
			if c >= '0' && c <= '9' {
				digits++
			}
		}
		if digits < minimum {
			return n
		}
		masked++
		n = bytes.Clone(n)
		for i, c := range n {
			if c < '0' || c > '9' {
				continue
			}
			if digits > keep {
				n[i] = '*'
			}
			digits--
		}
		return n
	})
	return masked, text
}

func TestRedactIsItsReference(t *testing.T) {
	source, err := os.ReadFile(redact)
	if err != nil {
		t.Fatal(err)
	}
	sources := find(t, folderWith(t, "redact", string(source), true))
	random := rand.New(rand.NewPCG(5, 6))
	records := append(corpus.Lengths(9, 60), corpus.InvalidUTF8(2)...)
	for range 3000 {
		record := make([]byte, random.IntN(50))
		for i := range record {
			record[i] = "0123456789 -x\xff"[random.IntN(14)]
		}
		records = append(records, record)
	}
	total := 0
	for _, p := range [][2]int{{12, 4}, {1, 0}, {5, 64}, {3, 2}} {
		op, err := operator.Parse(fmt.Sprintf("redact?keep=%d&digits=%d", p[1], p[0]), sources...)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			value := op.AppendReference(nil, record)
			masked, text := redacted(record, p[0], p[1])
			if got := binary.LittleEndian.Uint32(value); int(got) != masked || !bytes.Equal(value[op.Stride():], text) {
				t.Fatalf("%v of %q: %d, %q, want %d, %q", op, record, got, value[op.Stride():], masked, text)
			}
			total += masked
		}
	}
	if total < 1000 {
		t.Errorf("%d numbers are masked: the test needs more", total)
	}
}
