package neardup

import (
	"runtime"
	"sync"
)

// place is the position of a key in a table.
type place struct {
	key   int32 // index of the key
	found bool  // whether the table already contained the key; if not, put inserted it
	slot  int
}

const (
	// putAhead is the number of keys that are looked up together. A large table doesn't fit into a cache. If a core knows many slots in
	// advance, it waits for memory only once.
	putAhead = 64

	// put uses one more goroutine for every putKeys keys, up to putMost goroutines.
	putMost = 8
	putKeys = 8192
)

// put finds each key in the table, or inserts it without a label. Several goroutines call visit, each with the places of up to
// putAhead keys. Equal keys are visited by the same goroutine, in their order.
func (g *generation) put(keys []uint64, visit func([]place)) {
	n := min(runtime.GOMAXPROCS(0), putMost, 1+len(keys)/putKeys)
	if g.goroutines > 0 {
		n = g.goroutines
	}
	g.putInRanges(keys, n, visit)
}

// putInRanges divides the slots among n goroutines. Each goroutine puts the keys whose home is in its range, so the goroutines
// need no locks.
func (g *generation) putInRanges(keys []uint64, n int, visit func([]place)) {
	beyond := make([][]int32, n)
	var running sync.WaitGroup
	for i := range n {
		w := putter{generation: g, keys: keys, first: len(g.keys) * i / n, end: len(g.keys) * (i + 1) / n, visit: visit}
		if n == 1 {
			beyond[0] = w.run()
			break
		}
		running.Go(func() { beyond[i] = w.run() })
	}
	running.Wait()
	for _, list := range beyond {
		for _, i := range list {
			slot, found := g.find(keys[i])
			g.keys[slot] = keys[i]
			visit([]place{{key: i, slot: slot, found: found}})
		}
	}
}

// putter puts the keys whose home is in a range of slots.
type putter struct {
	*generation
	keys       []uint64
	first, end int
	visit      func([]place)

	places [putAhead]place
	n      int     // number of keys in places; until put runs, slot is the key's home
	read   uint64  // result of reading slots in advance, so that the compiler keeps the reads
	beyond []int32 // indices of keys that don't fit into the range, because all slots from their home to its end are taken
}

// run puts the keys of the range. It returns the indices of the keys that don't fit into the range.
func (w *putter) run() []int32 {
	for i, key := range w.keys {
		home := w.home(key)
		if home < w.first || home >= w.end {
			continue
		}
		w.read += w.generation.keys[home] ^ uint64(w.labels[home])
		w.places[w.n] = place{key: int32(i), slot: home}
		if w.n++; w.n == putAhead {
			w.put()
		}
	}
	w.put()
	return w.beyond
}

// put puts the keys in places, whose slots were read in advance.
func (w *putter) put() {
	found := w.places[:0]
	for _, p := range w.places[:w.n] {
		key, table := w.keys[p.key], w.generation.keys
		for p.slot < w.end && table[p.slot] != key && table[p.slot] != 0 {
			p.slot++
		}
		if p.slot == w.end {
			w.beyond = append(w.beyond, p.key)
			continue
		}
		p.found = table[p.slot] == key
		table[p.slot] = key
		found = append(found, p)
	}
	w.visit(found)
	w.n = 0
}
