package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. Its text is a whole number, followed by the unit KiB, MiB or GiB or by nothing.
type Size int64

// sizeUnits lists the units of Size, largest first.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

var errSizeForm = errors.New("not a size")

// UnmarshalText parses "4194304" or "4MiB". Case matters. It refuses fractions: write "1536KiB" for 1.5 MiB.
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

// String formats the size in the largest unit that divides it. UnmarshalText parses the result.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
