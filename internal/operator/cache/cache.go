// Package cache keeps compiled operators in a folder, so that a worker compiles a source only once
// (docs/adr/0040-operators-of-your-own.md).
//
// Several processes and pods may share a folder, and the folder may be read-only. Start reading with Open, then Cache.Image.
package cache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// suffix is the suffix of image files. The cache ignores other files in the folder.
	suffix = ".image"

	// maxImages and maxBytes limit the number and the total size of the images in the folder. Beyond these limits, the cache removes the
	// least recently used images.
	maxImages = 256
	maxBytes  = 1 << 30

	// maxImage is the maximum size of an image in bytes.
	maxImage = 64 << 20
)

// Key has all inputs that determine an image.
type Key struct {
	Source       []byte
	Headers      fs.FS    // headers that the source may include
	Options      []string // options of the compiler
	Architecture string   // compute capability of the GPU, for example "9.0"
	Compiler     string   // identity of the compiler: its version, or its file
}

// name returns the name of the key's file. Different keys have different names.
func (k *Key) name() (string, error) {
	h := sha256.New()
	add(h, k.Source)
	add(h, []byte(k.Architecture))
	add(h, []byte(k.Compiler))
	add(h, binary.LittleEndian.AppendUint64(nil, uint64(len(k.Options))))
	for _, o := range k.Options {
		add(h, []byte(o))
	}
	err := fs.WalkDir(k.Headers, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(k.Headers, path)
		add(h, []byte(path))
		add(h, text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)) + suffix, err
}

// add adds the length of a text and then the text to a hash. With the lengths, "ab", "c" and "a", "bc" have different hashes.
func add(h hash.Hash, text []byte) {
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // a hash returns no error
	_, _ = h.Write(text)
}

// Cache is a folder of images. A nil Cache keeps nothing. A Cache is safe for concurrent use.
type Cache struct{ folder string }

// Open returns the cache in a folder, and creates the folder if it is missing. It returns nil if folder is "". It returns an error if the
// folder can't be created. In a folder without write permission, the cache only reads images.
func Open(folder string) (*Cache, error) {
	if folder == "" {
		return nil, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // several users may share it
		return nil, fmt.Errorf("cache of compiled operators: %w", err)
	}
	return &Cache{folder: folder}, nil
}

// Image returns the image of a key. If the cache doesn't contain the image, Image calls compile and keeps the result. hit reports whether
// the cache contained the image. kept is the error of keeping the image, or nil. err is the error of compile or of reading the headers.
func (c *Cache) Image(k Key, compile func() ([]byte, error)) (image []byte, hit bool, kept, err error) {
	if c == nil {
		image, err = compile()
		return image, false, nil, err
	}
	name, err := k.name()
	if err != nil {
		return nil, false, nil, err
	}
	path := filepath.Join(c.folder, name)
	if image := c.read(path); image != nil {
		return image, true, nil, nil
	}
	if image, err = compile(); err != nil {
		return nil, false, nil, err
	}
	if kept = c.write(path, image); kept == nil {
		c.trim(path)
	}
	return image, false, kept, nil
}

// read returns the image in a file, or nil if the file is missing or damaged.
func (c *Cache) read(path string) []byte {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxImage+sha256.Size {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) <= sha256.Size {
		return nil
	}
	image := data[sha256.Size:]
	if sum := sha256.Sum256(image); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil // the caller replaces the file
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // fails in a read-only folder
	return image
}

// write writes the SHA-256 of the image and the image to a file. Other processes see the complete file or no file.
func (c *Cache) write(path string, image []byte) (err error) {
	if len(image) == 0 || len(image) > maxImage {
		return fmt.Errorf("an image of %d bytes: the cache keeps images of 1 byte to %d MiB", len(image), maxImage>>20)
	}
	f, err := os.CreateTemp(c.folder, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	sum := sha256.Sum256(image)
	_, err = f.Write(append(sum[:], image...))
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// trim removes images until the folder is within its limits, but keeps the image at path. It also removes unfinished files that processes
// left behind.
func (c *Cache) trim(path string) {
	type file struct {
		path  string
		bytes int64
		used  time.Time
	}
	entries, _ := os.ReadDir(c.folder) // files that can't be listed stay
	var images []file
	sum := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		f := file{filepath.Join(c.folder, e.Name()), info.Size(), info.ModTime()}
		switch {
		case strings.HasSuffix(e.Name(), suffix):
			images, sum = append(images, f), sum+f.bytes
		case strings.HasPrefix(e.Name(), ".new-") && time.Since(f.used) > unfinished:
			_ = os.Remove(f.path)
		}
	}
	slices.SortFunc(images, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	for left := len(images); len(images) > 0 && (left > maxImages || sum > maxBytes); images = images[1:] {
		if oldest := images[0]; oldest.path != path && os.Remove(oldest.path) == nil {
			left, sum = left-1, sum-oldest.bytes
		}
	}
}

// unfinished is the age from which trim treats an incomplete file as abandoned.
const unfinished = time.Hour
