package cuda

import "io/fs"

// Source is the source file of an operator.
type Source struct {
	Name    string   // of the file, for the compiler's messages
	Text    string   // must not contain a zero byte
	Headers fs.FS    // the files that it may include, by their paths
	Compute string   // compute capability of the GPU, for example "9.0"
	Options []string // for the compiler, such as "-DNAME=VALUE"
}

// CompileError is the error for a source file that doesn't compile.
type CompileError struct {
	Name string
	Log  string // what the compiler wrote, with file, line and caret
}

// Error returns what the compiler wrote.
func (e *CompileError) Error() string { return e.Name + " doesn't compile:\n" + e.Log }
