package neardup_test

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// TestDocuments expects the groups of Curator's workflow for texts with near-duplicates. Copies with a high similarity must be found.
func TestDocuments(t *testing.T) {
	const batch = 1000
	n := documentCount(t)
	p := neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: n}
	documents := corpus.NearDuplicates{Seed: 3, Share: 0.3, Text: corpus.TextsOf(3, 500)}
	signatures := signaturesOf(t, documents, n)
	got, _, err := neardup.Components(p, batch, signatures)
	if err != nil {
		t.Fatal(err)
	}
	if want := neardup.CuratorGroups(signatures, p.Bands, p.Rows); !slices.Equal(got, want) {
		t.Fatal("the groups differ")
	}

	sizes := map[int]int{}
	for _, root := range got {
		sizes[root]++
	}
	t.Logf("%d documents, %d groups, the largest has %d, 0 documents are in another group", n, len(sizes), slices.Max(slices.Collect(maps.Values(sizes))))

	var found, all [5]int // by similarity: 0.5, 0.6, 0.7, 0.8, 0.9 and more
	var expected [5]float64
	members, unlike := 0, 0            // members: documents other than the first of their group; unlike: the members that are unlike the first
	step := max(1, n/similarDocuments) // computing similarities takes longer than the rest of the test
	for i := 0; i < n; i += step {
		if got[i] != i {
			members++
			if similarity(documents.Append(nil, i), documents.Append(nil, got[i]), p.K) < 0.5 {
				unlike++
			}
		}
		source, _, ok := documents.Source(i)
		if !ok {
			continue
		}
		s := similarity(documents.Append(nil, i), documents.Append(nil, source), p.K)
		if s < 0.5 {
			continue
		}
		k := min(int(s*10)-5, 4)
		all[k]++
		expected[k] += 1 - math.Pow(1-math.Pow(s, float64(p.Rows)), float64(p.Bands))
		if got[i] == got[source] {
			found[k]++
		}
	}
	for k := range all {
		t.Logf("similarity from 0.%d: %d pairs, %d in one group, %.1f share a band by theory", k+5, all[k], found[k], expected[k])
	}
	t.Logf("%d members of groups, %d have a similarity below 0.5 to the first document of their group", members, unlike)
	if all[4] < n/step/50 || float64(found[4]) < 0.95*expected[4] {
		t.Errorf("%d of %d near copies are in the group of their source, and %.0f are expected", found[4], all[4], expected[4])
	}
}

// TestDocumentsOfSmallGenerations compares the verdicts on texts with the edges of Curator's workflow between documents that are close
// enough to each other in the stream. A copy may have any earlier document as its source, so many copies are too far from their source.
func TestDocumentsOfSmallGenerations(t *testing.T) {
	n := min(documentCount(t), 200_000) // the comparison keeps all values of bands in a map
	documents := corpus.NearDuplicates{Seed: 3, Share: 0.3, Text: corpus.TextsOf(3, 500)}
	signatures := signaturesOf(t, documents, n)
	for _, part := range []int{3, 10, 100} {
		p := neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: n / part}
		counts, err := neardup.CompareEdges(p, max(1, p.Records/7), signatures)
		if err != nil {
			t.Errorf("%d records in a generation: %v", p.Records, err)
		}
		t.Logf("%d documents, %d in a generation: %+v", n, p.Records, counts)
		if counts.Seen == 0 || counts.Unseen == 0 {
			t.Errorf("%d records in a generation: %+v: want neighbors that the index finds, and others", p.Records, counts)
		}
	}
}

// similarDocuments is the approximate number of documents whose similarities are computed.
const similarDocuments = 250_000

// signaturesOf returns the signatures of the first n documents, which minhash's host kernel computes.
func signaturesOf(t *testing.T, documents corpus.NearDuplicates, n int) [][]uint32 {
	t.Helper()
	minhash, err := operator.Parse("minhash?hashes=260")
	if err != nil {
		t.Fatal(err)
	}
	kernels := operator.HostKernels()
	at := slices.IndexFunc(kernels, func(k device.HostKernel) bool { return k.Name() == minhash.Name() })
	kernel, err := kernels[at].Bind(minhash.Params())
	if err != nil {
		t.Fatal(err)
	}
	const batch = 2000
	signatures := make([][]uint32, n)
	var batches errgroup.Group
	batches.SetLimit(runtime.GOMAXPROCS(0))
	for first := 0; first < n; first += batch {
		batches.Go(func() error {
			end := min(first+batch, n)
			var rows []byte
			offsets := []uint32{0}
			for i := first; i < end; i++ {
				rows = documents.Append(rows, i)
				offsets = append(offsets, uint32(len(rows)))
			}
			needs := kernel.Needs(device.Shape{Rows: end - first, Bytes: len(rows)})
			scratch, result := make([]uint64, (needs.Scratch+7)/8), make([]byte, needs.Result)
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(scratch))), 8*len(scratch)) // aligned to 8
			err := kernel.Run(rows, offsets, bytes, result, func(n int, fn func(i int)) {
				for i := range n {
					fn(i)
				}
			})
			for i := first; i < end && err == nil; i++ {
				signatures[i] = make([]uint32, minhash.Stride()/4)
				_, err = binary.Decode(result[(i-first)*minhash.Stride():], binary.LittleEndian, signatures[i])
			}
			return err
		})
	}
	if err := batches.Wait(); err != nil {
		t.Fatal(err)
	}
	return signatures
}

// documentCount returns 3000, or the value of MILLRACE_NEARDUP_DOCUMENTS.
func documentCount(t *testing.T) int {
	value := os.Getenv("MILLRACE_NEARDUP_DOCUMENTS")
	if value == "" {
		return 3000
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1000 {
		t.Fatalf("MILLRACE_NEARDUP_DOCUMENTS is %q: set a number from 1000", value)
	}
	return n
}

// similarity returns the Jaccard similarity of the sets of k-character shingles of two texts.
func similarity(a, b []byte, k int) float64 {
	set := func(text []byte) map[string]bool {
		s, characters := map[string]bool{}, []rune(string(text))
		for i := range max(1, len(characters)-k+1) {
			s[string(characters[i:min(i+k, len(characters))])] = true
		}
		return s
	}
	x, y := set(a), set(b)
	both := 0
	for shingle := range x {
		if y[shingle] {
			both++
		}
	}
	return float64(both) / float64(len(x)+len(y)-both)
}
