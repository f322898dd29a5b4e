package neardup

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// groups is a union-find structure. groups[i] is the parent of element i, and is at most i.
type groups []int

func newGroups(n int) groups {
	g := make(groups, n)
	for i := range g {
		g[i] = i
	}
	return g
}

func (g groups) find(i int) int {
	for g[i] != i {
		g[i] = g[g[i]]
		i = g[i]
	}
	return i
}

func (g groups) join(i, j int) {
	i, j = g.find(i), g.find(j)
	g[max(i, j)] = min(i, j)
}

// roots returns, for each element, the least member of its group.
func (g groups) roots() []int {
	roots := make([]int, len(g))
	for i := range g {
		roots[i] = g.find(i)
	}
	return roots
}

// curator returns the groups of NeMo Curator's workflow. Documents with the same values in a band form a bucket. Each pair of neighbors in
// a bucket forms an edge. It compares the values themselves, not keys.
func curator(signatures [][]uint32, bands, rows int) groups {
	g := newGroups(len(signatures))
	for b := range bands {
		values := func(i int) []uint32 { return signatures[i][b*rows : (b+1)*rows] }
		order := make([]int, len(signatures))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return slices.Compare(values(i), values(j)) })
		for k := 1; k < len(order); k++ {
			if slices.Equal(values(order[k-1]), values(order[k])) {
				g.join(order[k-1], order[k])
			}
		}
	}
	return g
}

// eachVerdict calls do with an index's verdict on each document, in order. The position of document i is i+1:0.
func eachVerdict(p Parameters, batch int, signatures [][]uint32, do func(i int, v Verdict)) error {
	x, err := New(p, batch)
	if err != nil {
		return err
	}
	n := len(signatures)
	for first := 0; first < n; first += batch {
		var positions []Position
		var keys []uint64
		for i := first; i < min(n, first+batch); i++ {
			positions = append(positions, Position{Sequence: uint64(i) + 1})
			keys = p.AppendKeys(keys, signatures[i])
		}
		verdicts, err := x.Apply(positions, keys)
		if err != nil {
			return err
		}
		for i, v := range verdicts {
			do(first+i, v)
		}
	}
	return nil
}

// edges returns the indices of the documents that a verdict names.
func edges(v Verdict) (documents []int) {
	if v.Bands == 0 {
		return nil
	}
	documents = append(documents, int(v.DuplicateOf.Sequence)-1)
	for _, also := range v.Also {
		documents = append(documents, int(also.Sequence)-1)
	}
	return documents
}

// components returns, for each record, the least member of its group according to an index's verdicts. several is the total
// length of the verdicts' Also lists.
func components(p Parameters, batch int, signatures [][]uint32) (roots []int, several int, err error) {
	g := newGroups(len(signatures))
	err = eachVerdict(p, batch, signatures, func(i int, v Verdict) {
		for _, j := range edges(v) {
			g.join(i, j)
		}
		several += len(v.Also)
	})
	return g.roots(), several, err
}

// randomSignatures returns the signatures of n documents. Each document copies parts of up to two of the previous documents, at most within
// documents back.
func randomSignatures(n, values, within int) [][]uint32 {
	random := rand.New(rand.NewPCG(11, 12))
	signatures := make([][]uint32, n)
	for i := range signatures {
		s := make([]uint32, values)
		for j := range s {
			s[j] = random.Uint32()
		}
		for range random.IntN(3) {
			if source := signatures[i-random.IntN(min(i, within)+1)]; source != nil {
				from := random.IntN(len(s))
				copy(s[from:], source[from:min(len(s), from+random.IntN(60))])
			}
		}
		signatures[i] = s
	}
	return signatures
}

// TestComponents joins each record with all positions that its verdict names, and expects the groups of Curator's workflow.
func TestComponents(t *testing.T) {
	const bands, rows, n, batch = 20, 13, 20_000, 700
	signatures := randomSignatures(n, bands*rows, n)
	p := Parameters{Bands: bands, Rows: rows, K: 24, Seed: 42, Records: n}
	got, several, err := components(p, batch, signatures)
	if err != nil {
		t.Fatal(err)
	}
	want := curator(signatures, bands, rows).roots()
	if !slices.Equal(got, want) {
		t.Error("the groups differ")
	}
	slices.Sort(want)
	if sizes := len(slices.Compact(want)); sizes < n/10 || sizes > n*9/10 || several < n/100 {
		t.Errorf("%d groups, and %d labels in Also: the documents are too simple", sizes, several)
	}
}
