//go:build cgo

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// libraryName is the file name of the kernel library.
const libraryName = "libmillrace.so"

// libraries holds the opened libraries, by path. They are never closed, because the CUDA runtime in them can't be
// unloaded.
var libraries = struct {
	sync.Mutex
	byPath map[string]*library
}{byPath: map[string]*library{}}

// Streams share the GPU's hardware queues. Work in a queue waits for all earlier work in that queue, even for work of
// other streams. CUDA creates 8 queues by default. The environment variable changes this number, up to 32. More queues
// than necessary make small batches slower (docs/benchmarks.md).
const (
	envConnections     = "CUDA_DEVICE_MAX_CONNECTIONS"
	defaultConnections = 8
	maxConnections     = 32

	// ownStreams counts the clock's stream and the stream of the device check. The check's stream is created first and
	// rarely used, so another stream can share its queue without waiting.
	ownStreams = 2
)

// AskConnections requests one hardware queue for each of the caller's streams and for the clock's stream. It does
// nothing if CUDA's default is enough or if the user has set a number. The setting applies to the whole process. Call
// AskConnections before List and Open, because CUDA reads the variable CUDA_DEVICE_MAX_CONNECTIONS when it starts.
func AskConnections(streams int) error {
	all := streams + ownStreams
	if all <= defaultConnections+1 || os.Getenv(envConnections) != "" {
		return nil
	}
	return os.Setenv(envConnections, strconv.Itoa(min(all, maxConnections)))
}

// candidates returns the paths to try, in order. If named is empty, they are libmillrace.so beside the executable and
// on the system's search path.
func candidates(named string) []string {
	if named != "" {
		if !strings.ContainsRune(named, filepath.Separator) {
			named = "." + string(filepath.Separator) + named // makes it a path instead of a name to search for
		}
		return []string{named}
	}
	var paths []string
	if executable, err := os.Executable(); err == nil {
		paths = append(paths, filepath.Join(filepath.Dir(executable), libraryName))
	}
	return append(paths, libraryName)
}

// openLibrary opens the first candidate that exists. If that library can't be used, openLibrary fails and tries no
// other candidate, because the library was installed on purpose.
func openLibrary(named string) (*library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	var tried []string
	for _, path := range candidates(named) {
		if l := libraries.byPath[path]; l != nil {
			return l, nil
		}
		l, outcome, minimum, message := loadLibrary(path)
		switch outcome {
		case loaded:
			libraries.byPath[path] = l
			return l, nil
		case noSymbols:
			return nil, device.Errorf(OpenLibrary, "", device.ErrABI,
				"%s is not a Millrace kernel library: it has no %s; name one built with `make -C kernels` in MILLRACE_KERNELS",
				path, message)
		case tooOld:
			return nil, device.Errorf(OpenLibrary, "", device.ErrABI,
				"%s speaks ABI version %d, but this program has version %d and needs a library of version %d or later: build both from one commit (`make -C kernels`), or name the right one in MILLRACE_KERNELS",
				path, l.abi, ownABI, minABI)
		case tooNew:
			return nil, device.Errorf(OpenLibrary, "", device.ErrABI,
				"%s speaks ABI version %d and needs a program of version %d or later, but this program has version %d: build both from one commit (`make -C kernels`), or name the right one in MILLRACE_KERNELS",
				path, l.abi, minimum, ownABI)
		}
		tried = append(tried, fmt.Sprintf("%s (%s)", path, message))
	}
	return nil, device.Errorf(OpenLibrary, "", device.ErrUnavailable,
		"tried %s; build it with `make -C kernels` and name it in MILLRACE_KERNELS", strings.Join(tried, ", "))
}

// versionText formats a CUDA version, which is 1000 * major + 10 * minor. It returns an empty string for 0.
func versionText(version int) string {
	if version == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

// LibraryVersions describes the kernel library (see Options.Library). It needs no GPU and no driver. It fails with
// device.ErrUnavailable if there is no library, and with device.ErrABI if the library can't be used.
func LibraryVersions(library string) (Versions, error) {
	l, err := openLibrary(library)
	if err != nil {
		return Versions{}, err
	}
	runtime, driver, err := l.versions()
	if err != nil {
		return Versions{}, err
	}
	return Versions{Library: l.path, ABI: l.abi, Runtime: versionText(runtime), Driver: versionText(driver)}, nil
}

// List describes the GPUs that are visible to the process, ordered by ordinal. For the parameter, see Options.Library.
// List fails with device.ErrUnavailable if there is no library, driver or GPU. It fails with device.ErrABI if the
// library can't be used.
func List(library string) ([]device.Info, error) {
	l, err := openLibrary(library)
	if err != nil {
		return nil, err
	}
	return l.list()
}

func (l *library) list() ([]device.Info, error) {
	n, err := l.deviceCount()
	if err != nil {
		return nil, err
	}
	all := make([]device.Info, n)
	for i := range all {
		if all[i], err = l.deviceInfo(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// find returns the GPU with the given ordinal.
func (l *library) find(ordinal int) (device.Info, error) {
	all, err := l.list()
	if err != nil {
		return device.Info{}, err
	}
	var there []string
	for _, info := range all {
		if info.Ordinal == ordinal {
			return info, nil
		}
		there = append(there, fmt.Sprintf("%d (%s)", info.Ordinal, info.ID))
	}
	return device.Info{}, device.Errorf("open", "", device.ErrNotFound, "no GPU %d: there are %s", ordinal, strings.Join(there, ", "))
}

// checkDeclared checks that the library and this program declare the same built-in operators. The program makes
// parameter blocks and reads results according to its own declarations. checkDeclared ignores an operator that the
// library lacks, because Kernel reports it.
func (l *library) checkDeclared() error {
	for _, want := range compiled.BuiltIn() {
		op := l.findOperator(want.Name)
		if op == nil {
			continue
		}
		says := "nothing"
		if data := l.describe(op); data != nil {
			got, err := compiled.Decode(data)
			switch {
			case err != nil:
				says = fmt.Sprintf("a description that can't be read (%v)", err)
			case reflect.DeepEqual(got, want):
				continue
			default:
				says = got.Declaration()
			}
		}
		return device.Errorf(OpenLibrary, "", device.ErrABI,
			"%s has a different operator %s than this program: it declares %s, and the program declares %s: build both from one commit (`make -C kernels`), or name the right one in MILLRACE_KERNELS",
			l.path, want.Name, says, want.Declaration())
	}
	return nil
}
