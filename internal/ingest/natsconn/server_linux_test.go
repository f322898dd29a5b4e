package natsconn

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/ingest/finding"
)

// nobody is a user that owns no file of the test.
const nobody = 65534

// TestAFileOfAnotherUser reads as a worker that doesn't run as root, whichever user runs the test.
func TestAFileOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, []byte("SUAseed"), 0o000); err != nil {
		t.Fatal(err)
	}
	found := make(chan finding.Finding)
	go func() {
		// Only the permissions of this thread change. It ends with its goroutine.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, err := unix.SetfsuidRetUid(nobody); err != nil {
				panic(err)
			}
		}
		found <- Server{NKey: path}.Inspect(time.Now())[0]
	}()
	f := <-found
	for _, part := range []string{"MILLRACE_NATS_NKEY: cannot be read", path, "permission denied", "fsGroup"} {
		if f.Level != finding.Error || !strings.Contains(f.String(), part) {
			t.Errorf("%q does not say %q", f, part)
		}
	}
}
