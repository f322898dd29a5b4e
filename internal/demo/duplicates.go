package demo

import (
	"fmt"

	"millrace/internal/corpus"
)

// CheckShare returns an error if a share of near-duplicates is out of range.
func CheckShare(share float64) error {
	if !(share >= 0 && share <= 0.95) {
		return fmt.Errorf("--near-duplicates is %v, want 0 to 0.95", share)
	}
	return nil
}

// leastSimilarity is the least similarity of a near-duplicate and its source, about. The operator finds nearly all of them.
const leastSimilarity = 0.9

// nearDuplicates generates the texts of a set, and near-duplicates of earlier texts in place of some of them.
type nearDuplicates struct {
	texts
	copies corpus.NearDuplicates
}

func newNearDuplicates(all texts, seed uint64, share float64) *nearDuplicates {
	return &nearDuplicates{all, corpus.NearDuplicates{Seed: seed, Share: share, Least: leastSimilarity, Text: all.text}}
}

func (d *nearDuplicates) text(dst []byte, n int) []byte { return d.copies.Append(dst, n) }
