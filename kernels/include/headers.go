// Package include contains the headers for the source of an operator. With it, the worker can compile operators on a machine without
// the other files of this repository. internal/operator/cpulib, internal/operator/images and cmd/worker use it.
package include

import "embed"

// Headers has the folder millrace with operator.cuh and the headers that it includes.
//
//go:embed millrace
var Headers embed.FS
