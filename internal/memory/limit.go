// Package memory says how much memory this process may take, and divides it: what is taken whatever the load, what the Go runtime is told
// to stay below, and what is left for payloads in hand.
package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Limit is how much memory the process may take.
type Limit struct {
	Bytes  int64  // 0: unknown
	Source string // where it is from, in words

	Machine bool // it is all of the machine's: nobody has set one for this process
}

// Find returns the lowest limit of the cgroups that the process is in, of version 1 or 2, and of the groups above them. Without one it
// returns the machine's memory. root is the root of the file system. Where there is no /proc, as on macOS, it returns no limit and no error.
func Find(root fs.FS) (Limit, error) {
	machine, err := machineMemory(root)
	if errors.Is(err, fs.ErrNotExist) {
		return Limit{Source: "unknown on this system"}, nil
	}
	if err != nil {
		return Limit{}, err
	}
	limit := Limit{Bytes: machine, Source: "the machine's memory", Machine: true}
	groups, err := memoryGroups(root)
	if err != nil {
		return Limit{}, err
	}
	for _, g := range groups {
		bytes, file, err := g.lowest(root)
		if err != nil {
			return Limit{}, err
		}
		if bytes < limit.Bytes {
			limit = Limit{Bytes: bytes, Source: "cgroup /" + file}
		}
	}
	return limit, nil
}

// Locked is how much memory the process may lock (RLIMIT_MEMLOCK), math.MaxInt64 where there is no such limit.
func Locked(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/self/limits")
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			if fields[0] == "unlimited" {
				return math.MaxInt64, nil
			}
			return strconv.ParseInt(fields[0], 10, 64)
		}
	}
	return math.MaxInt64, nil
}

// machineMemory reads the machine's memory.
func machineMemory(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/meminfo: %w", err)
		}
		return kib << 10, nil
	}
	return 0, errors.New("/proc/meminfo has no MemTotal")
}

// group is a cgroup that the process is in, and may bound its memory.
type group struct {
	mount string // where its hierarchy is mounted, without the leading slash
	dir   string // of the group below that
	file  string // which has the limit
}

// lowest is the lowest limit of the group and those above it, and the file that has it; math.MaxInt64 if there is none.
func (g group) lowest(root fs.FS) (bytes int64, file string, err error) {
	bytes = math.MaxInt64
	for dir := g.dir; ; dir = path.Dir(dir) {
		name := path.Join(g.mount, dir, g.file)
		text, err := fs.ReadFile(root, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the root group of version 2 has no such file
			return 0, "", err
		}
		if err == nil {
			n, err := parseLimit(string(text))
			if err != nil {
				return 0, "", fmt.Errorf("/%s: %w", name, err)
			}
			if n < bytes {
				bytes, file = n, name
			}
		}
		if dir == "/" || dir == "." {
			return bytes, file, nil
		}
	}
}

// noLimit is from where on a number of version 1 stands for none: it writes the largest that it can have.
const noLimit = 1 << 60

func parseLimit(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n >= noLimit {
		return math.MaxInt64, nil
	}
	return n, err
}
