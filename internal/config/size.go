package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a count of bytes. It is written as a whole number of bytes, or with the unit KiB, MiB or GiB
// behind it.
type Size int64

// The units of Size, largest first.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

var errSizeForm = errors.New("not a size")

// UnmarshalText reads "4194304" or "4MiB". Case matters and fractions are not taken: "1.5MiB" is "1536KiB".
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if errors.Is(err, strconv.ErrRange) || (err == nil && n > uint64(math.MaxInt64/unit)) {
		return fmt.Errorf("more than %d bytes", int64(math.MaxInt64))
	}
	if err != nil {
		return errSizeForm
	}
	*s = Size(int64(n) * unit)
	return nil
}

// String writes the size in the largest unit that divides it, so that UnmarshalText reads it back.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
