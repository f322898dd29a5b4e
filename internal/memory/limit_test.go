package memory

import (
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

const gib = 1 << 30

// files returns a file system with the given names and contents, and a machine with 16 GiB.
func files(pairs map[string]string) fstest.MapFS {
	tree := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:       16777216 kB\nMemFree:        1 kB\n")}}
	for name, text := range pairs {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

// trees holds the files of typical systems, and the limit that Find returns for them.
var trees = map[string]struct {
	files map[string]string
	want  Limit
}{
	"no cgroups": {nil, Limit{16 * gib, "the machine's memory", true}},
	"version 2, a container with a namespace": {map[string]string{
		"proc/self/cgroup":         "0::/\n",
		"proc/self/mountinfo":      "1 0 0:1 / /proc rw - proc proc rw\n1431 1421 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n",
		"sys/fs/cgroup/memory.max": "4294967296\n",
	}, Limit{4 * gib, "cgroup /sys/fs/cgroup/memory.max", false}},
	"version 2, a service below a slice with less": {map[string]string{
		"proc/self/cgroup":                                 "0::/system.slice/w.service\n",
		"proc/self/mountinfo":                              "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/system.slice/memory.max":            "1073741824\n",
		"sys/fs/cgroup/system.slice/w.service/memory.max":  "2147483648\n",
		"sys/fs/cgroup/system.slice/w.service/memory.high": "1\n",
	}, Limit{gib, "cgroup /sys/fs/cgroup/system.slice/memory.max", false}},
	"version 2 without a limit": {map[string]string{
		"proc/self/cgroup":                    "0::/user.slice\n",
		"proc/self/mountinfo":                 "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/user.slice/memory.max": "max\n",
	}, Limit{16 * gib, "the machine's memory", true}},
	"version 1, a container that sees its whole path": {map[string]string{
		"proc/self/cgroup":                           "12:cpu,cpuacct:/docker/abc\n9:memory:/docker/abc\n",
		"proc/self/mountinfo":                        "39 30 0:33 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n40 30 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
	}, Limit{gib / 2, "cgroup /sys/fs/cgroup/memory/memory.limit_in_bytes", false}},
	"both, and the memory controller is version 1's": {map[string]string{
		"proc/self/cgroup": "4:memory:/group/one\n0::/\n",
		"proc/self/mountinfo": "40 30 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"41 30 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":           "9223372036854771712\n",
		"sys/fs/cgroup/memory/group/memory.limit_in_bytes":     "9223372036854771712\n",
		"sys/fs/cgroup/memory/group/one/memory.limit_in_bytes": "402653184\n",
	}, Limit{384 << 20, "cgroup /sys/fs/cgroup/memory/group/one/memory.limit_in_bytes", false}},
	"a limit above the machine's memory": {map[string]string{
		"proc/self/cgroup":         "0::/\n",
		"proc/self/mountinfo":      "1 0 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
		"sys/fs/cgroup/memory.max": "68719476736\n",
	}, Limit{16 * gib, "the machine's memory", true}},
}

func TestFind(t *testing.T) {
	for name, c := range trees {
		t.Run(name, func(t *testing.T) {
			got, err := Find(files(c.files))
			if err != nil || got != c.want {
				t.Errorf("Find = %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestFindOnThisMachine reads the real files. A test in internal/faults runs the worker under a real limit.
func TestFindOnThisMachine(t *testing.T) {
	got, err := Find(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/meminfo"); err == nil && got.Bytes < 1<<20 {
		t.Errorf("Find = %+v, less than this test needs", got)
	}
}

func TestFindWithoutProc(t *testing.T) {
	if got, err := Find(fstest.MapFS{}); err != nil || got.Bytes != 0 {
		t.Errorf("Find = %+v, %v; want no limit and no error", got, err)
	}
}

func TestErrorOfFindNamesTheUnreadableFile(t *testing.T) {
	tree := files(trees["version 2, a container with a namespace"].files)
	tree["sys/fs/cgroup/memory.max"] = &fstest.MapFile{Data: []byte("plenty\n")}
	if got, err := Find(tree); err == nil || !strings.Contains(err.Error(), "/sys/fs/cgroup/memory.max") {
		t.Errorf("Find = %+v, %v; want an error that names the file", got, err)
	}
}

func TestLocked(t *testing.T) {
	for text, want := range map[string]int64{
		"Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \n": 8 << 20,
		"Max locked memory         unlimited            unlimited            bytes     \n":                                                                                 math.MaxInt64,
		"": math.MaxInt64,
	} {
		if got, err := Locked(fstest.MapFS{"proc/self/limits": {Data: []byte(text)}}); err != nil || got != want {
			t.Errorf("Locked of %q = %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := Locked(fstest.MapFS{}); err != nil || got != math.MaxInt64 {
		t.Errorf("Locked without /proc = %d, %v; want no limit", got, err)
	}
}
