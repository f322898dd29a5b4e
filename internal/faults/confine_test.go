package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// confined returns a program that runs the worker with a memory limit, in bytes. If this machine permits cgroups for
// tests, the kernel kills a process that exceeds the limit. Otherwise the limit is only a setting of the worker, and
// the test checks the memory use.
func (r *rig) confined(limit int64) (program string) {
	r.t.Helper()
	enter := fmt.Sprintf("export MILLRACE_MEMORY_LIMIT=%d", limit)
	group, err := r.memoryGroup(limit)
	if err != nil {
		r.t.Logf("NO MEMORY CGROUP, so the kernel does not enforce the limit: %v", err)
	} else {
		enter = fmt.Sprintf("echo $$ > %q || exit 97", filepath.Join(group, "cgroup.procs"))
	}
	program = filepath.Join(r.dir, "confined-worker")
	text := fmt.Sprintf("#!/bin/sh\n%s\nexec %q \"$@\"\n", enter, r.binary)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		r.t.Fatal(err)
	}
	return program
}

// memoryGroup creates a cgroup with the given limit below the test's own cgroup. It supports cgroup versions 1 and 2.
func (r *rig) memoryGroup(limit int64) (dir string, err error) {
	parent, file, err := memoryParent()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(parent, "millrace-faults-"); err != nil {
		return "", err
	}
	r.t.Cleanup(func() {
		if err := os.Remove(dir); err != nil { // the processes of the cgroup have already been cleaned up
			r.t.Errorf("remove the cgroup: %v", err)
		}
	})
	return dir, os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0)
}

// memoryParent returns the folder in which the test may create cgroups, and the name of the file that sets a cgroup's
// limit.
func memoryParent() (dir, file string, err error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[1] == "memory":
			dir, file = "/sys/fs/cgroup/memory"+parts[2], "memory.limit_in_bytes"
			if _, err := os.Stat(dir); err != nil {
				dir = "/sys/fs/cgroup/memory" // a container's own group appears as the root
			}
			return dir, file, nil
		case parts[0] == "0" && dir == "":
			dir, file = filepath.Join("/sys/fs/cgroup", parts[2]), "memory.max"
		}
	}
	if controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); err != nil || !strings.Contains(string(controllers), "memory") {
		return "", "", fmt.Errorf("%s gives its children no memory controller", dir)
	}
	return dir, file, nil
}
