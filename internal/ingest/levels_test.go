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
		tells  bool // what comes once more than the limit ran alone often enough to be blamed
	}{
		{levels{full: 8192, limit: 10}, []int{8192, 512, 32, 2, 1, 1, 1, 1, 1, 1}, 4, true},
		{levels{full: 1024, limit: 10}, []int{1024, 64, 4, 1, 1, 1, 1, 1, 1, 1}, 3, true},
		{levels{full: 8192, limit: 4}, []int{8192, 512, 1, 1}, 2, true},
		{levels{full: 8192, limit: 3}, []int{8192, 1, 1}, 1, true},
		{levels{full: 8192, limit: 2}, []int{8192, 1}, 1, false},
		{levels{full: 8192, limit: 1}, []int{8192}, 1, false},
		{levels{full: 1, limit: 10}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, true},
	} {
		var sizes []int
		for level := range c.levels.limit {
			sizes = append(sizes, c.levels.size(level))
		}
		if !slices.Equal(sizes, c.sizes) || c.levels.alone() != c.alone || c.levels.triedAlone() != c.tells {
			t.Errorf("%+v: batches of %v, alone from %d, tells %t; want %v, %d, %t",
				c.levels, sizes, c.levels.alone(), c.levels.triedAlone(), c.sizes, c.alone, c.tells)
		}
		for level := range c.levels.limit {
			if got := c.levels.guilty(level); got != (level > c.alone) {
				t.Errorf("%+v: guilty at level %d is %t, and it runs alone from %d on", c.levels, level, got, c.alone)
			}
		}
	}
}
