package neardup

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"testing"
)

// edgeCounts are numbers of edges between documents.
type edgeCounts struct {
	Named  int // edges that verdicts name
	Far    int // named edges that lead to documents in neither generation
	Seen   int // neighbors in a bucket of Curator's workflow that are in the same or successive generations
	Unseen int // neighbors that are farther apart
}

// compareEdges compares the verdicts of an index with the edges of Curator's workflow, which connect neighbors in a bucket. The
// generations of the index are smaller than the corpus. It returns an error if, among the documents up to some document,
//
//   - verdicts don't connect two neighbors in the same generation or in successive ones. Documents that are at most
//     p.Records apart are always in such generations.
//   - a verdict names a document to which no edges between such neighbors lead.
//
// It compares the values of bands, not keys.
func compareEdges(p Parameters, batch int, signatures [][]uint32) (counts edgeCounts, err error) {
	named, want := newGroups(len(signatures)), newGroups(len(signatures))
	last := map[string]int{} // last document of each bucket
	fail := func(format string, args ...any) { err = cmp.Or(err, fmt.Errorf(format, args...)) }
	refused := eachVerdict(p, batch, signatures, func(i int, v Verdict) {
		var neighbours []int
		for b := range p.Bands {
			bucket := bucketOf(b, signatures[i][b*p.Rows:(b+1)*p.Rows])
			if j, ok := last[bucket]; ok && i/p.Records-j/p.Records <= 1 {
				neighbours = append(neighbours, j)
				want.join(i, j)
			} else if ok {
				counts.Unseen++
			}
			last[bucket] = i
		}
		for _, j := range edges(v) {
			if j < 0 || j >= i {
				fail("document %d: the verdict names document %d, which doesn't come before it", i, j)
				continue
			}
			counts.Named++
			if i-j >= 2*p.Records {
				counts.Far++
			}
			named.join(i, j)
			if want.find(i) != want.find(j) {
				fail("document %d: the verdict names document %d, to which no edges lead", i, j)
			}
		}
		for _, j := range neighbours {
			counts.Seen++
			if named.find(i) != named.find(j) {
				fail("document %d shares a band with document %d, and the verdicts don't connect them", i, j)
			}
		}
		if len(neighbours) != v.Bands {
			fail("document %d shares %d bands, and the verdict says %d", i, len(neighbours), v.Bands)
		}
	})
	return counts, cmp.Or(refused, err)
}

// bucketOf returns the key of the bucket of documents with these values in a band.
func bucketOf(band int, values []uint32) string {
	bucket := binary.LittleEndian.AppendUint32(nil, uint32(band))
	for _, v := range values {
		bucket = binary.LittleEndian.AppendUint32(bucket, v)
	}
	return string(bucket)
}

// TestSmallGenerations uses some buckets that last for many generations, and some that are dropped.
func TestSmallGenerations(t *testing.T) {
	const bands, rows, n = 20, 13, 6000
	for _, records := range []int{1, 7, 100, 1999} {
		for _, within := range []int{records, 3 * records} {
			p := Parameters{Bands: bands, Rows: rows, K: 24, Seed: 42, Records: records}
			counts, err := compareEdges(p, max(1, records/3), randomSignatures(n, bands*rows, within))
			if err != nil {
				t.Errorf("%d records in a generation, sources within %d: %v", records, within, err)
			}
			if counts.Far < n/100 || counts.Seen < n/4 || (counts.Unseen == 0) != (within == records) {
				t.Errorf("%d records in a generation, sources within %d: %+v: the documents are too simple", records, within, counts)
			}
		}
	}
}
