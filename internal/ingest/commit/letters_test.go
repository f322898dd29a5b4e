package commit

import (
	"slices"
	"testing"
)

// TestLettersOfInputsWithTheSameSequence shows that dead letters of two inputs with the same sequence are
// distinguished. A stream that was restored from an older copy reuses sequences.
func TestLettersOfInputsWithTheSameSequence(t *testing.T) {
	t.Parallel()
	older, newer, other := Position{7, 100}, Position{7, 200}, Position{8, 100}
	l := Letters{}.add([]Letter{{newer, WholeMessage}, {other, 9}, {older, 2}})
	for _, c := range []struct {
		letter Letter
		want   bool
	}{
		{Letter{older, 2}, true}, {Letter{newer, WholeMessage}, true}, {Letter{other, 9}, true},
		{Letter{older, WholeMessage}, false}, {Letter{newer, 2}, false}, {Letter{Position{7, 150}, 2}, false}, {Letter{Position{7, 150}, WholeMessage}, false},
		{Letter{older, 1}, false}, {Letter{older, 3}, false}, {Letter{older, 10}, false}, {Letter{other, 1}, false},
	} {
		if got := l.Has(c.letter); got != c.want {
			t.Errorf("%+v is stored: %v, want %v", c.letter, got, c.want)
		}
	}
	var order []Position
	for _, in := range l {
		order = append(order, in.Position)
	}
	if want := []Position{older, newer, other}; !slices.Equal(order, want) {
		t.Errorf("the inputs are %v, want %v", order, want)
	}
	if left := l.above(Position{7, 150}); len(left) != 2 || left.Has(Letter{older, 2}) {
		t.Errorf("behind a position between them there are %v", left)
	}
}

// TestLettersAreAddedToACopy shows that add returns a changed copy. A marker that could not be stored therefore has
// no effect.
func TestLettersAreAddedToACopy(t *testing.T) {
	t.Parallel()
	in, next := position(1), position(2)
	before := Letters{}.add([]Letter{{in, 0}})
	after := before.add([]Letter{{in, 1}, {in, 8}, {in, WholeMessage}, {next, 0}})
	for _, letter := range []Letter{{in, 1}, {in, 8}, {in, WholeMessage}, {next, 0}} {
		if before.Has(letter) || !after.Has(letter) {
			t.Errorf("%+v is stored before it is added: %v, and afterwards: %v", letter, before.Has(letter), after.Has(letter))
		}
	}
}
