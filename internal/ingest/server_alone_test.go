package ingest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"millrace/internal/ingest/embedded"
)

// envServerDir is the environment variable that makes this program a server with its files in the given folder.
const envServerDir = "MILLRACE_TEST_SERVER_DIR"

// serveAlone runs a server until standard input ends. It prints the server's address and returns the exit status.
func serveAlone(dir string) int {
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // standard input ends when the parent closes it
	s.Close()
	return 0
}

func newRigAlone(t testing.TB) *rig {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), envServerDir+"="+t.TempDir()), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the server
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not come up: %v", err)
	}
	return newRigAt(t, strings.TrimSpace(url))
}
