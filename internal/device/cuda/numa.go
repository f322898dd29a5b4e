//go:build cgo

package cuda

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is the mount point of the file system that describes Linux devices.
const sysfs = "/sys"

// nodeOf returns the number of the PCI device's NUMA node, as text. root is the mount point of sysfs, and pci is the
// device's address on the bus. nodeOf returns an empty string if the system doesn't report a node or has only one.
func nodeOf(root, pci string) string {
	if pci == "" || nodes(root) < 2 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, "bus/pci/devices", strings.ToLower(pci), "numa_node"))
	if err != nil {
		return ""
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 { // -1 means that the firmware doesn't report a node
		return ""
	}
	return strconv.Itoa(node)
}

// nodes returns the number of NUMA nodes that have memory.
func nodes(root string) (n int) {
	text, err := os.ReadFile(filepath.Join(root, "devices/system/node/has_memory"))
	if err != nil {
		return 0
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to := from
		if ranged {
			if to, err = strconv.Atoi(last); err != nil || to < from {
				return 0
			}
		}
		n += to - from + 1
	}
	return n
}
