package memory

import (
	"errors"
	"io/fs"
	"strings"
)

// The files that have a group's limit.
const (
	fileV1 = "memory.limit_in_bytes"
	fileV2 = "memory.max"
)

// memoryGroups finds the cgroups of the process that may bound its memory: of version 1 where the memory controller is there, and of
// version 2. A system may have both.
func memoryGroups(root fs.FS) (groups []group, err error) {
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil, ignoreMissing(err)
	}
	paths, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for line := range strings.Lines(string(paths)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(parts) < 3 {
			continue
		}
		var file, wanted string
		switch {
		case parts[0] == "0" && parts[1] == "":
			file, wanted = fileV2, "cgroup2"
		case hasWord(parts[1], "memory"):
			file, wanted = fileV1, "cgroup"
		default:
			continue
		}
		if mount, dir, ok := findMount(string(mounts), wanted, parts[2]); ok {
			groups = append(groups, group{mount: strings.TrimPrefix(mount, "/"), dir: dir, file: file})
		}
	}
	return groups, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// findMount finds where a hierarchy is mounted, and the process's group in it. A container without a cgroup namespace sees the whole
// path of its group, and has just that group mounted.
func findMount(mounts, kind, at string) (mount, dir string, ok bool) {
	for line := range strings.Lines(mounts) {
		// id parent device root mount-point options [optional fields] - type source super-options
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(rest) < 3 || rest[0] != kind || kind == "cgroup" && !hasWord(rest[2], "memory") {
			continue
		}
		return fields[4], below(fields[3], at), true
	}
	return "", "", false
}

// below is the path of a group below the one that is mounted; the mounted one where it is elsewhere.
func below(mounted, at string) string {
	if mounted == "/" {
		return at
	}
	rest, ok := strings.CutPrefix(at, mounted)
	if !ok || rest == "" || rest[0] != '/' {
		return "/"
	}
	return rest
}
