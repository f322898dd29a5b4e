package natsconn

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/natstest"
)

// nobody is the ID of a user that owns no file of the test.
const nobody = 65534

// TestAFileOfAnotherUser reads a file as a non-root worker, even if root runs the test.
func TestAFileOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	natstest.OK(t, os.WriteFile(path, []byte("SUAseed"), 0o000))
	found := make(chan finding.Finding)
	go func() {
		// Only this thread's permissions change. It ends with its goroutine.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, err := unix.SetfsuidRetUid(nobody); err != nil {
				panic(err)
			}
		}
		found <- Server{NKey: path}.Inspect(time.Now())[0]
	}()
	f := <-found
	if f.Level != finding.Error {
		t.Errorf("%v is no error", f)
	}
	wantParts(t, f.String(), "MILLRACE_NATS_NKEY: cannot be read", path, "permission denied", "fsGroup")
}
