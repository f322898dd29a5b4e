// Package memory determines how much memory this process may take, and divides it: a fixed part for buffers, a limit for the Go
// runtime, and the rest for the payloads that the worker holds. The command cmd/worker uses it at the start, before it allocates
// anything large.
//
// Start reading at Find, which reads the limit from /proc and the cgroups, and at Limit.Divide.
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
	Source string // where the limit comes from, for people

	Machine bool // the limit is all of the machine's memory, because none is set for this process
}

// Find returns the lowest limit of the process's cgroups, of version 1 or 2, and of the groups above them. If there is no limit, it
// returns the machine's memory. root is the root of the file system. On a system without /proc, such as macOS, Find returns no limit and
// no error.
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

// Locked returns how many bytes of memory the process may lock (RLIMIT_MEMLOCK). It returns math.MaxInt64 if there is no limit.
func Locked(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/self/limits")
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, err
	}
	soft := firstField(text, "Max locked memory")
	if soft == "" || soft == "unlimited" {
		return math.MaxInt64, nil
	}
	return strconv.ParseInt(soft, 10, 64)
}

// firstField returns the field after label in the line of text that begins with it, or "" if there is none.
func firstField(text []byte, label string) string {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, label)
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			return fields[0]
		}
	}
	return ""
}

// machineMemory returns the size of the machine's memory in bytes.
func machineMemory(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	total := firstField(text, "MemTotal:") // a number and the unit kB
	if total == "" {
		return 0, errors.New("/proc/meminfo has no MemTotal")
	}
	kib, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: %w", err)
	}
	return kib << 10, nil
}

// group is a cgroup of the process that may limit its memory.
type group struct {
	mount string // the mount point of its hierarchy, without the leading slash
	dir   string // the path of the group below mount
	file  string // the name of the file that holds the limit
}

// lowest returns the lowest limit of the group and of the groups above it, in bytes, and the file that holds it. It returns
// math.MaxInt64 if there is no limit.
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

// noLimit is the smallest value in a limit file of cgroup version 1 that means no limit. Without a limit, version 1
// writes the largest number that it can store.
const noLimit = 1 << 60

// parseLimit parses the text of a limit file. It returns math.MaxInt64 for no limit.
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
