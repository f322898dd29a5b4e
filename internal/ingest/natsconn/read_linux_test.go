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

// nobody is a user whom no file of the test belongs to.
const nobody = 65534

// TestAFileOfAnotherUser reads as a worker does that does not run as root, whoever runs the test.
func TestAFileOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, []byte("SUAseed"), 0o000); err != nil {
		t.Fatal(err)
	}
	found := make(chan *fileFinding)
	go func() {
		// What a thread may read is changed for this one alone, which ends with its goroutine.
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
