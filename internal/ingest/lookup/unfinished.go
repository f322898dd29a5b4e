package lookup

import "slices"

// unfinished contains the ids of stored messages that don't settle their input: parts of results, and dead letters of
// records.
type unfinished struct {
	ids   map[Input][]string
	count int  // number of ids
	full  bool // whether there is no space for more ids, because all of them belong to wanted inputs
}

// add adds the id of a message. If there are already maxOthers ids, it first drops the ids of all inputs that are not
// wanted, and returns false.
func (u *unfinished) add(id string, in Input, wanted []Input) (kept bool) {
	kept = u.count < maxOthers
	if !kept && !u.full {
		u.keep(wanted)
		u.full = u.count >= maxOthers
	}
	if u.count < maxOthers {
		if u.ids == nil {
			u.ids = map[Input][]string{}
		}
		u.ids[in] = append(u.ids[in], id)
		u.count++
	}
	return kept
}

// keep drops the ids of all inputs except the given ones.
func (u *unfinished) keep(inputs []Input) {
	wanted := map[Input]bool{}
	for _, in := range inputs {
		wanted[in] = true
	}
	for in := range u.ids {
		if !wanted[in] {
			u.drop(in)
		}
	}
}

func (u *unfinished) drop(in Input) {
	if ids := u.ids[in]; len(ids) > 0 {
		u.count -= len(ids)
		delete(u.ids, in)
		u.full = false
	}
}

// of returns the ids of an input. The caller must not change them.
func (u *unfinished) of(in Input) []string { return slices.Clip(u.ids[in]) }
