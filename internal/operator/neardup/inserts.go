package neardup

import "slices"

// Inserts are the changes that consecutive records made in one generation, as the log describes them.
type Inserts struct {
	First         int        // number of the first record in its generation; 0 begins a generation
	Labels        []Position // label of each record
	Carries       int        // sum of Result.Carries of the records
	FirstCarried  int        // number of labels that earlier records of the generation carry over
	CarriedLabels []Position // labels that these records carry over
	Keys          []uint64
	KeyLabels     []uint32 // for each key: the number of its carried label, or Parameters.Records plus the number of its record in the generation

	parameters Parameters
	carried    int // like FirstCarried, but including the labels for which there was no space
}

// newInserts returns empty Inserts with memory for the changes of n records.
func newInserts(p Parameters, n int) *Inserts {
	return &Inserts{
		Labels: make([]Position, 0, n), CarriedLabels: make([]Position, 0, n*p.Bands),
		Keys: make([]uint64, 0, n*p.Bands), KeyLabels: make([]uint32, 0, n*p.Bands),
	}
}

// begin empties in. first is the number of the first record in its generation. carried is the number of labels that earlier records carry
// over, including labels for which there was no space.
func (in *Inserts) begin(p Parameters, first, carried int) {
	in.parameters = p
	in.First, in.Carries, in.carried, in.FirstCarried = first, 0, carried, min(carried, p.Records)
	in.Labels, in.CarriedLabels, in.Keys, in.KeyLabels = in.Labels[:0], in.CarriedLabels[:0], in.Keys[:0], in.KeyLabels[:0]
}

// add appends the changes of the next record. Its keys must be at the end of Keys.
func (in *Inserts) add(r *row) {
	own := uint32(in.parameters.Records + in.First + len(in.Labels))
	first, carried := len(in.KeyLabels), uint32(in.carried+in.Carries)
	in.KeyLabels = slices.Grow(in.KeyLabels, len(in.Keys)-first)[:len(in.Keys)]
	labels := in.KeyLabels[first:]
	for i := range labels {
		labels[i] = own
	}
	if len(r.carried) > 0 {
		inserted := r.inserted
		for i := range labels {
			band := inserted & -inserted
			inserted &^= band
			for k := range r.carried {
				if r.carried[k].bands&band != 0 {
					labels[i] = carried + uint32(k)
				}
			}
		}
	}
	for i := range r.carried {
		in.CarriedLabels = append(in.CarriedLabels, r.carried[i].label)
	}
	in.Labels = append(in.Labels, r.label)
	in.Carries += r.carries
}

// fits reports whether a record carries its labels over if and only if there is space for them.
func (in *Inserts) fits(r *row) bool {
	return r.carries == 0 || in.carried+in.Carries+r.carries <= in.parameters.Records != r.relabeled
}
