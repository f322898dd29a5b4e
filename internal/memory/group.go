package memory

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// The names of the files that hold the limit of a cgroup, by version.
const (
	fileV1 = "memory.limit_in_bytes"
	fileV2 = "memory.max"
)

// memoryGroups returns the cgroups of the process that may limit its memory: the group of version 1 that has the memory controller, and
// the group of version 2. A system may have both.
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
		case limitsMemory(parts[1]):
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

// ignoreMissing returns nil for an error about a missing file, and err otherwise.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// limitsMemory reports whether the memory controller is in a list of controllers.
func limitsMemory(controllers string) bool {
	return slices.Contains(strings.Split(controllers, ","), "memory")
}

// findMount returns the mount point of a cgroup hierarchy, and the path of the process's group below it. A container without a
// cgroup namespace sees the full path of its group (at), but only that group is mounted.
func findMount(mounts, kind, at string) (mount, dir string, ok bool) {
	for line := range strings.Lines(mounts) {
		// id parent device root mount-point options [optional fields] - type source super-options
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(rest) < 3 || rest[0] != kind || kind == "cgroup" && !limitsMemory(rest[2]) {
			continue
		}
		return fields[4], below(fields[3], at), true
	}
	return "", "", false
}

// below returns the path of the group at, relative to the mounted group. It returns "/" if the group is not below the mounted one.
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
