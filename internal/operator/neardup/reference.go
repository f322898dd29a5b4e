package neardup

import "slices"

// Reference follows the rule of the package comment and processes one record at a time. Create it with NewReference.
type Reference struct {
	parameters Parameters
	young, old map[uint64]Position // labels by key
	records    int                 // records in the young generation
	carried    int                 // labels that the young generation's records have carried over from the old one
}

// NewReference returns a reference without records.
func NewReference(p Parameters) *Reference {
	return &Reference{parameters: p, young: map[uint64]Position{}}
}

// Apply returns the verdict on a record, and inserts its keys.
func (r *Reference) Apply(position Position, keys []uint64) Verdict {
	if r.records == r.parameters.Records {
		r.old, r.young, r.records, r.carried = r.young, map[uint64]Position{}, 0, 0
	}
	r.records++

	var labels, copied []Position // labels of all hits, and of the hits in the old generation only
	for _, key := range keys {
		if label, ok := r.young[key]; ok {
			labels = append(labels, label)
		} else if label, ok := r.old[key]; ok {
			labels = append(labels, label)
			copied = append(copied, label)
		}
	}
	verdict := Verdict{Bands: len(labels)}
	own := position
	if len(labels) > 0 {
		labels = distinct(labels)
		verdict.DuplicateOf, verdict.Also = labels[0], labels[1:]
		own = labels[0]
	}
	r.carried += len(distinct(copied))
	for _, key := range keys {
		if _, ok := r.young[key]; ok {
			continue
		}
		r.young[key] = own
		if label, ok := r.old[key]; ok && r.carried <= r.parameters.Records {
			r.young[key] = label
		}
	}
	return verdict
}

// distinct returns positions in ascending order, each once.
func distinct(positions []Position) []Position {
	sorted := slices.Clone(positions)
	slices.SortFunc(sorted, Position.Compare)
	return slices.Compact(sorted)
}
