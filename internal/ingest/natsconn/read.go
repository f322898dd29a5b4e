package natsconn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxFileBytes bounds how much of a file is read, because a wrong path may name anything. All authorities that an
// operating system trusts are less than 300 KiB.
const maxFileBytes = 1 << 20

// read reads a file, or reports why it can't be used.
func read(variable, path string) ([]byte, *fileFinding) {
	wrong := func(found, advice string) *fileFinding {
		return &fileFinding{Variable: variable, Path: path, Found: found, Advice: advice, Wrong: true}
	}
	file, err := os.Open(path)
	if err == nil {
		defer func() { _ = file.Close() }() // opened only for reading, so the error doesn't matter
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(file, maxFileBytes+1)); err == nil {
			switch {
			case len(data) > maxFileBytes:
				return nil, wrong(fmt.Sprintf("is larger than %d bytes", maxFileBytes), "name the right file")
			case len(bytes.TrimSpace(data)) == 0:
				return nil, wrong("is empty", "fill it, or name another file")
			}
			return data, nil
		}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wrong("does not exist: "+err.Error(), "name an existing file, or mount the Secret that holds it")
	case errors.Is(err, fs.ErrPermission):
		return nil, wrong(fmt.Sprintf("may not be read by user %d: %v", os.Geteuid(), err),
			"let the worker's user read it (in Kubernetes: fsGroup, and the Secret's defaultMode 0440)")
	case errors.Is(err, syscall.EISDIR):
		return nil, wrong("is a directory", "name the file in it")
	}
	return nil, wrong("cannot be read: "+err.Error(), "name a file that the worker can read")
}
