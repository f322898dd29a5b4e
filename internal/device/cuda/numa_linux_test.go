//go:build cgo

package cuda

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// nodeOf returns the GPU's NUMA node. It returns "" if the system doesn't report a node or has only one node.
func TestNodeOf(t *testing.T) {
	const numa, memory = "bus/pci/devices/0000:4b:00.0/numa_node", "devices/system/node/has_memory"
	for name, c := range map[string]struct {
		files map[string]string
		pci   string
		want  string
	}{
		"second of two":      {map[string]string{numa: "1\n", memory: "0-1\n"}, "0000:4b:00.0", "1"},
		"first of two":       {map[string]string{numa: "0\n", memory: "0-1\n"}, "0000:4b:00.0", "0"},
		"in capitals":        {map[string]string{numa: "3\n", memory: "0,3\n"}, "0000:4B:00.0", "3"},
		"many":               {map[string]string{numa: "7\n", memory: "0-3,5,7-9\n"}, "0000:4b:00.0", "7"},
		"one node":           {map[string]string{numa: "0\n", memory: "0\n"}, "0000:4b:00.0", ""},
		"firmware is silent": {map[string]string{numa: "-1\n", memory: "0-1\n"}, "0000:4b:00.0", ""},
		"no such device":     {map[string]string{numa: "1\n", memory: "0-1\n"}, "0000:4c:00.0", ""},
		"no nodes at all":    {map[string]string{numa: "1\n"}, "0000:4b:00.0", ""},
		"nonsense":           {map[string]string{numa: "one\n", memory: "0-1\n"}, "0000:4b:00.0", ""},
		"nonsense of nodes":  {map[string]string{numa: "1\n", memory: "all\n"}, "0000:4b:00.0", ""},
		"no address":         {map[string]string{numa: "1\n", memory: "0-1\n"}, "", ""},
	} {
		if got := nodeOf(tree(t, c.files), c.pci); got != c.want {
			t.Errorf("%s: node %q, want %q", name, got, c.want)
		}
	}
}

// policy returns the thread's memory policy. It skips the test if the system doesn't report it.
func policy(t *testing.T) (mode int32, mask [maxNodes / 64]uint64) {
	t.Helper()
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&mask)), maxNodes, 0, 0, 0)
	if errno != 0 {
		t.Skipf("NOT TESTED: THE SYSTEM DOES NOT REPORT MEMORY POLICIES: %v", errno)
	}
	return mode, mask
}

// The policy applies until it is restored. A thread that already has a policy keeps its policy.
func TestPreferNode(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if mode, _ := policy(t); mode != policyDefault {
		t.Skipf("NOT TESTED: THE PROCESS WAS STARTED UNDER MEMORY POLICY %d", mode)
	}
	for _, none := range []string{"", "-1", "4096", "one"} {
		restore := preferNode(none)
		if mode, _ := policy(t); mode != policyDefault {
			t.Errorf("node %q: policy %d", none, mode)
		}
		restore()
	}
	restore := preferNode("0")
	mode, mask := policy(t)
	restore()
	if mode == policyDefault {
		t.Skip("NOT TESTED: THE SYSTEM DOES NOT ALLOW MEMORY POLICIES")
	}
	if mode != policyPreferred || mask[0] != 1 {
		t.Errorf("policy %d of nodes %b, want %d of node 0", mode, mask[0], policyPreferred)
	}
	if mode, _ := policy(t); mode != policyDefault {
		t.Errorf("policy %d remains after restore", mode)
	}

	const interleave = 3
	nodes := [maxNodes / 64]uint64{1}
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, interleave, uintptr(unsafe.Pointer(&nodes)), maxNodes+1); errno != 0 {
		t.Fatal(errno)
	}
	defer func() { _, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, policyDefault, 0, 0) }() // the previous policy
	restore = preferNode("0")
	during, _ := policy(t)
	restore()
	if after, _ := policy(t); during != interleave || after != interleave {
		t.Errorf("the user's policy %d changed to %d, and to %d after restore", interleave, during, after)
	}
}
