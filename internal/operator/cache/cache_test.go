package cache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

func key() Key {
	return Key{
		Source: []byte("code"), Headers: fstest.MapFS{"millrace/a.cuh": {Data: []byte("a")}, "millrace/b.cuh": {Data: []byte("b")}},
		Options: []string{"-DX=1", "-DY=2"}, Architecture: "9.0", Compiler: "12.4",
	}
}

func open(t *testing.T, folder string) *Cache {
	t.Helper()
	c, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// want checks the image, whether it was cached, and that a cached image isn't compiled.
func want(t *testing.T, c *Cache, k Key, made string, hit bool) {
	t.Helper()
	compiled := false
	image, got, kept, err := c.Image(k, func() ([]byte, error) {
		compiled = true
		return []byte(made), nil
	})
	if err != nil || kept != nil || string(image) != made || got != hit || compiled == hit {
		t.Errorf("image %q, hit %v, compiled %v, errors %v and %v; want image %q, hit %v", image, got, compiled, kept, err, made, hit)
	}
}

// TestAnImageIsCompiledOnce: a second process doesn't compile the image again, even in an unwritable folder.
func TestAnImageIsCompiledOnce(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "made", "when", "missing")
	want(t, open(t, folder), key(), "image", false)
	want(t, open(t, folder), key(), "image", true)
	if err := os.Chmod(folder, 0o555); err != nil { //nolint:gosec // other users read it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(folder, 0o755) }) //nolint:gosec // so that it can be removed
	want(t, open(t, folder), key(), "image", true)
}

// TestWhatAnImageDependsOn: any change to the key causes a compilation.
func TestWhatAnImageDependsOn(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	want(t, c, key(), "first", false)
	for what, change := range map[string]func(k *Key){
		"source": func(k *Key) { k.Source = []byte("other") },
		"header": func(k *Key) { k.Headers.(fstest.MapFS)["millrace/a.cuh"].Data = []byte("x") },
		"name of a header": func(k *Key) {
			k.Headers = fstest.MapFS{"millrace/a.cuh": {Data: []byte("a")}, "millrace/c.cuh": {Data: []byte("b")}}
		},
		"option":             func(k *Key) { k.Options[1] = "-DY=3" },
		"border of options":  func(k *Key) { k.Options = []string{"-DX=1-", "DY=2"} },
		"number of options":  func(k *Key) { k.Options = k.Options[:1] },
		"architecture":       func(k *Key) { k.Architecture = "8.0" },
		"compiler's version": func(k *Key) { k.Compiler = "13.0" },
	} {
		k := key()
		change(&k)
		want(t, c, k, what, false)
		want(t, c, k, what, true)
	}
	want(t, c, key(), "first", true)
}

// TestDamagedImagesAreMadeAgain: Image returns the correct image for any content of the file.
func TestDamagedImagesAreMadeAgain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := open(t, folder)
	want(t, c, key(), "image", false)
	name, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil || len(name) != 1 {
		t.Fatal(name, err)
	}
	whole, err := os.ReadFile(name[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1
		for what, data := range map[string][]byte{"cut off": whole[:i], "flipped": flipped} {
			if err := os.WriteFile(name[0], data, 0o600); err != nil {
				t.Fatal(err)
			}
			if image, hit, _, err := c.Image(key(), func() ([]byte, error) { return []byte("image"), nil }); hit || err != nil || string(image) != "image" {
				t.Fatalf("%s at byte %d: image %q, hit %v, error %v", what, i, image, hit, err)
			}
		}
	}
	want(t, c, key(), "image", true)
}

// TestErrorsOfTheCompilerAreNotKept: the next start compiles again.
func TestErrorsOfTheCompilerAreNotKept(t *testing.T) {
	t.Parallel()
	c, wrong := open(t, t.TempDir()), errors.New("line 3")
	for range 2 {
		if _, hit, _, err := c.Image(key(), func() ([]byte, error) { return nil, wrong }); hit || !errors.Is(err, wrong) {
			t.Errorf("hit %v, error %v", hit, err)
		}
	}
	want(t, c, key(), "image", false)
}

// TestWithoutACacheEachStartCompiles covers a missing folder name and an unwritable folder. Image reports an unwritable folder.
func TestWithoutACacheEachStartCompiles(t *testing.T) {
	t.Parallel()
	for range 2 {
		want(t, open(t, ""), key(), "image", false)
	}
	gone := open(t, filepath.Join(t.TempDir(), "gone"))
	if err := os.Remove(gone.folder); err != nil {
		t.Fatal(err)
	}
	image, hit, kept, err := gone.Image(key(), func() ([]byte, error) { return []byte("image"), nil })
	if string(image) != "image" || hit || kept == nil || err != nil {
		t.Errorf("image %q, hit %v, kept %v, error %v", image, hit, kept, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as folder: %v", err)
	}
}

// TestTheFolderIsBounded: the cache removes the least recently used images, and unfinished files of dead processes.
func TestTheFolderIsBounded(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := open(t, folder)
	numbered := func(i int) Key {
		k := key()
		k.Source = fmt.Append(nil, i)
		return k
	}
	for i := range maxImages {
		want(t, c, numbered(i), "image", false)
		name, err := (&Key{Source: numbered(i).Source, Headers: key().Headers, Options: key().Options, Architecture: "9.0", Compiler: "12.4"}).name()
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-2*maxImages) * time.Minute)
		if err := os.Chtimes(filepath.Join(folder, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(folder, ".new-1")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(stale, time.Time{}, time.Now().Add(-2*unfinished)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, ".new-2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, c, numbered(0), "image", true) // makes it the most recently used image
	for i := range 3 {
		want(t, c, numbered(maxImages+i), "image", false)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != maxImages+1 || entries[0].Name() != ".new-2" {
		t.Errorf("%d files, the first is %s; want %d images and the new unfinished file", len(entries), entries[0].Name(), maxImages)
	}
	want(t, c, numbered(0), "image", true)
	want(t, c, numbered(4), "image", true)
	want(t, c, numbered(3), "image", false)
}

// TestProcessesShareAFolder: a reader always gets complete images while other processes write.
func TestProcessesShareAFolder(t *testing.T) {
	t.Parallel()
	folder, image := t.TempDir(), strings.Repeat("image", 1<<16)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c := open(t, folder)
			for i := range 50 {
				k := key()
				k.Architecture = strconv.Itoa(i)
				got, _, kept, err := c.Image(k, func() ([]byte, error) { return []byte(image), nil })
				if string(got) != image || kept != nil || err != nil {
					t.Errorf("an image of %d bytes, errors %v and %v", len(got), kept, err)
				}
			}
		})
	}
	all.Wait()
}
