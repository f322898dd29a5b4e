//go:build !cgo

package cpulib

import "errors"

type code struct{}

func load(string, []string) (code, error) {
	return code{}, errors.New("this binary was built without cgo: build with CGO_ENABLED=1 to run operators of your own on the CPU")
}

func (code) callPass(int, *batch, int, int, int) { panic("cpulib: no code is loaded without cgo") }
func (code) call(*batch, int, int)               { panic("cpulib: no code is loaded without cgo") }
