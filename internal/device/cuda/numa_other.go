//go:build cgo && !linux

package cuda

// preferNode does nothing: there are no GPUs here.
func preferNode(string) (restore func()) { return func() {} }
