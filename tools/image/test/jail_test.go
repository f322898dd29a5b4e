package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A jail gives a worker the environment of a pod with readOnlyRootFilesystem, using only kernel features. It has a
// read-only root with the files of the image and of the C library, an unprivileged user, and writable folders. A child
// process of the test binary enters the jail with jailWord. Mounts and privileges therefore affect only the child.
const (
	jailWord   = "enter-the-jail"
	jailFailed = 99

	nobody = 65532 // user of the image

	// The worker may write to these folders if the environment names their sources.
	tmp, jailTmp   = "/tmp", "JAIL_TMP"
	home, jailHome = "/home/nonroot", "JAIL_HOME"
)

func jailed(t *testing.T, root string, env []string, program ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{jailWord, root}, program...)...)
	cmd.Env = append([]string{"PATH=/opt/millrace", "HOME=" + home}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd
}

// enter replaces this process with the program. It returns only on an error.
func enter(args []string) error {
	if len(args) < 2 {
		return errors.New("want a root and a program")
	}
	runtime.LockOSThread() // some privileges are per thread
	root := args[0]
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{root, root, "", unix.MS_BIND | unix.MS_REC},
		{"/proc", root + "/proc", "", unix.MS_BIND | unix.MS_REC},
		{"", root, "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for folder, at := range map[string]string{os.Getenv(jailTmp): tmp, os.Getenv(jailHome): home} {
		if folder == "" {
			continue
		}
		if err := unix.Mount(folder, root+at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
	}
	if err := errors.Join(unix.Chroot(root), unix.Chdir(home)); err != nil {
		return err
	}
	if err := dropRights(); err != nil {
		return err
	}
	return unix.Exec(args[1], args[1:], os.Environ())
}

// dropRights keeps only the privileges of a pod with runAsUser, allowPrivilegeEscalation false and all capabilities
// dropped.
func dropRights() error {
	for c := range unix.CAP_LAST_CAP + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return errors.Join(
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody),
	)
}

// jailRoot returns an image as a container shows it. It contains the parts of the base that the worker needs and the
// image's files. The base is the C library of Debian 12, from this machine's package.
func jailRoot(t *testing.T, image string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts file systems and changes its user: run it as root, for example in a container")
	}
	root := t.TempDir()
	for _, dir := range []string{tmp, home, "/proc", "/etc"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The parent folders belong to the user who runs the tests. The jail's user needs permission to enter them.
	for dir := root; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyCLibrary(t, root)
	if out, err := exec.CommandContext(t.Context(), "cp", "--archive", image+"/.", root).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	return root
}

// copyCLibrary copies only the libraries of the package libc6.
func copyCLibrary(t *testing.T, root string) {
	t.Helper()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || !strings.Contains(string(release), `VERSION_ID="12"`) {
		t.Fatalf("the image needs the C library of Debian 12, and this machine has another: run this test in debian:12 (error %v)\n%s", err, release)
	}
	list, err := exec.CommandContext(t.Context(), "dpkg", "--listfiles", "libc6").Output()
	if err != nil {
		t.Fatalf("dpkg: %v", err)
	}
	copied := 0
	for path := range strings.FieldsSeq(string(list)) {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || !strings.HasPrefix(path, "/lib") {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "--archive", path, root+path).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v\n%s", err, out)
		}
		copied++
	}
	if copied == 0 {
		t.Fatal("the package libc6 has no libraries")
	}
}
