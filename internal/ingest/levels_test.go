package ingest

import (
	"slices"
	"testing"
)

func TestLevelsEndAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		levels levels
		sizes  []int // by level
		alone  int
	}{
		{levels{full: 8192, limit: 10}, []int{8192, 512, 32, 2, 1, 1, 1, 1, 1, 1}, 4},
		{levels{full: 1024, limit: 10}, []int{1024, 64, 4, 1, 1, 1, 1, 1, 1, 1}, 3},
		{levels{full: 8192, limit: 4}, []int{8192, 512, 1, 1}, 2},
		{levels{full: 8192, limit: 3}, []int{8192, 1, 1}, 1},
		{levels{full: 8192, limit: 2}, []int{8192, 1}, 1},
		{levels{full: 8192, limit: 1}, []int{8192}, 1},
		{levels{full: 1, limit: 10}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
	} {
		var sizes []int
		for level := range c.levels.limit {
			sizes = append(sizes, c.levels.size(level))
		}
		if !slices.Equal(sizes, c.sizes) || c.levels.alone() != c.alone {
			t.Errorf("%+v: batches of %v, alone from %d; want %v, %d", c.levels, sizes, c.levels.alone(), c.sizes, c.alone)
		}
		for level := range c.levels.limit {
			if got := c.levels.guilty(level); got != (level > c.alone) {
				t.Errorf("%+v: guilty at level %d is %t, and it runs alone from %d on", c.levels, level, got, c.alone)
			}
		}
	}
}
