package quarantine

import (
	"slices"
	"testing"
)

func TestLevelsEndAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		levels Levels
		sizes  []int // by level
		alone  int
	}{
		{Levels{Full: 8192, Limit: 10}, []int{8192, 512, 32, 2, 1, 1, 1, 1, 1, 1}, 4},
		{Levels{Full: 1024, Limit: 10}, []int{1024, 64, 4, 1, 1, 1, 1, 1, 1, 1}, 3},
		{Levels{Full: 8192, Limit: 4}, []int{8192, 512, 1, 1}, 2},
		{Levels{Full: 8192, Limit: 3}, []int{8192, 1, 1}, 1},
		{Levels{Full: 8192, Limit: 2}, []int{8192, 1}, 1},
		{Levels{Full: 8192, Limit: 1}, []int{8192}, 1},
		{Levels{Full: 1, Limit: 10}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
	} {
		var sizes []int
		for level := range c.levels.Limit {
			sizes = append(sizes, c.levels.size(level))
		}
		if !slices.Equal(sizes, c.sizes) || c.levels.AloneLevel() != c.alone {
			t.Errorf("%+v: batches of %v, alone from %d; want %v, %d", c.levels, sizes, c.levels.AloneLevel(), c.sizes, c.alone)
		}
		for level := range c.levels.Limit {
			if got := c.levels.isGuilty(level); got != (level > c.alone) {
				t.Errorf("%+v: guilty at level %d is %t, and it runs alone from %d on", c.levels, level, got, c.alone)
			}
		}
	}
}
