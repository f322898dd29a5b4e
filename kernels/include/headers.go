// Package include contains the headers that the source of an operator includes, so that the worker can compile operators on a machine
// where nothing else of this repository is installed. internal/operator/cpulib uses it.
package include

import "embed"

// Headers has the folder millrace with operator.cuh and the files that it includes.
//
//go:embed millrace
var Headers embed.FS
