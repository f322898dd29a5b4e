package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. Its text is a whole number, followed by a unit or by nothing.
type Size int64

// sizeUnits maps each unit of Size to its bytes. Kubernetes writes Mi and M, and they have the same meaning here.
var sizeUnits = map[string]int64{
	"":    1,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
}

// errSizeForm is the error for a text that is no size.
var errSizeForm = errors.New("not a whole number of bytes, KiB, MiB, GiB or TiB (Ki, Mi, Gi or Ti for short), or k, M, G or T (powers of 1000)")

// UnmarshalText parses "4194304", "4MiB", "4Mi" or "4M". Case matters. It refuses fractions: write "1536KiB" for 1.5 MiB.
func (s *Size) UnmarshalText(text []byte) error {
	trimmed := strings.TrimSpace(string(text))
	unit := strings.TrimLeft(trimmed, "0123456789")
	n, err := strconv.ParseUint(strings.TrimSuffix(trimmed, unit), 10, 63)
	bytes, known := sizeUnits[strings.TrimSpace(unit)]
	switch tooLarge := errors.Is(err, strconv.ErrRange); {
	case !known || err != nil && !tooLarge:
		return errSizeForm
	case tooLarge || n > uint64(math.MaxInt64/bytes):
		return fmt.Errorf("more than %d bytes", int64(math.MaxInt64))
	}
	*s = Size(int64(n) * bytes)
	return nil
}

// String formats the size in the largest of the units KiB, MiB, GiB and TiB that divides it. UnmarshalText parses the result.
func (s Size) String() string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if bytes := sizeUnits[unit]; s != 0 && int64(s)%bytes == 0 {
			return strconv.FormatInt(int64(s)/bytes, 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
