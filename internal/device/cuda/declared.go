//go:build cgo

package cuda

import (
	"fmt"
	"reflect"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// checkDeclared compares what the library says about the built-in operators with what this program declares, from which it makes
// parameter blocks and reads results. A library may lack an operator: then Kernel doesn't find it.
func (l *library) checkDeclared() error {
	for _, want := range compiled.BuiltIn() {
		op := l.findOperator(want.Name)
		if op == nil {
			continue
		}
		says := "nothing"
		if data := l.describe(op); data != nil {
			got, err := compiled.Decode(data)
			switch {
			case err != nil:
				says = fmt.Sprintf("what can't be read (%v)", err)
			case reflect.DeepEqual(got, want):
				continue
			default:
				says = got.Declaration()
			}
		}
		return device.Errorf(OpenLibrary, "", device.ErrABI,
			"%s has another operator %s than this program: it declares %s, and the program declares %s: build both from one commit (`make -C kernels`), or name the right one in MILLRACE_KERNELS",
			l.path, want.Name, says, want.Declaration())
	}
	return nil
}
