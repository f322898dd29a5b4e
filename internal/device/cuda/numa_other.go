//go:build cgo && !linux

package cuda

// preferNode does nothing, because only Linux is supported for GPUs.
func preferNode(string) (restore func()) { return func() {} }
