package natsconn

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is a user that owns no file of the test.
const nobody = 65534

// TestAFileOfAnotherUser reads as a worker that doesn't run as root, whichever user runs the test.
func TestAFileOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, []byte("SUAseed"), 0o000); err != nil {
		t.Fatal(err)
	}
	found := make(chan *fileFinding)
	go func() {
		// Only the permissions of this thread change. It ends with its goroutine.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, err := unix.SetfsuidRetUid(nobody); err != nil {
				panic(err)
			}
		}
		found <- seedFile(path).inspect()
	}()
	f := <-found
	for _, part := range []string{"MILLRACE_NATS_NKEY: " + path, "may not be read by user", "permission denied", "fsGroup"} {
		if !f.Wrong || !strings.Contains(f.Error(), part) {
			t.Errorf("%q does not say %q", f.Error(), part)
		}
	}
}

func TestAFileThatIsNoneOfIt(t *testing.T) {
	f := authorities("/dev/zero").inspect(time.Now())
	if !f.Wrong || !strings.Contains(f.Error(), "/dev/zero is larger than 1048576 bytes: name the right file") {
		t.Errorf("%q", f.Error())
	}
}
