// Package house holds the rules of this repository that a compiler and a linter do not know: which room may
// import which, where C is spoken, how long a file may be, that tests do not sleep and that documents name
// only what exists. The rules are tests, so breaking one fails the build; package house has no other code.
//
// Each rule is also run over a small tree that breaks it, so a rule that finds nothing is known to look.
package house
