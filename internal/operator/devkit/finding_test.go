package devkit

import (
	"math"
	"strings"
	"testing"

	"millrace/internal/operator/compiled"
)

// answer returns an answer with a float64 array of count elements. All elements but the last are zero.
func answer(t *testing.T, count int, last uint64) Answer {
	t.Helper()
	d := &compiled.Description{Name: "a", Version: 1, Fields: []compiled.Field{{Name: "x", Type: compiled.Float64, Array: true, Count: count, CountParameter: -1}}}
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, o.Stride())
	for i := range 8 {
		value[len(value)-8+i] = byte(last >> (8 * i))
	}
	return Answer{operator: o, value: value}
}

func TestDifferenceIsShownWhereItIs(t *testing.T) {
	one, two := math.Float64bits(1), math.Float64bits(2)
	if got, want := unlike(answer(t, 2, one), answer(t, 2, two), "A", "B"), `A gives {"x":[0,1]}, and B gives {"x":[0,2]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := unlike(answer(t, 500, one), answer(t, 500, two), "A", "B")
	if !strings.Contains(long, ",1]}, and B") || !strings.HasSuffix(long, ",2]}") || !strings.HasPrefix(long, "A gives ...") || len(long) > 3*maxText {
		t.Errorf("%s", long)
	}
	nan := math.Float64bits(math.NaN())
	if got, want := unlike(answer(t, 1, nan), answer(t, 1, nan+1), "A", "B"), `A and B give {"x":[null]}, but byte 0 differs`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
