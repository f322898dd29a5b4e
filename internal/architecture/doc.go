// Package architecture checks the rules of this repository that neither the compiler nor a linter can check. The rules
// limit the files that may import C, and the length of source files. In ingest, they limit the number of files with
// methods of one type. They require that files of ingest refer to each other in one direction. A skipped test must give
// a reason, and documents may refer only to existing things.
//
// The package has no code, only tests. TestArchitecture checks the repository. TestRulesFindViolations checks each rule
// on a small tree that breaks it. Start reading at rules_test.go.
//
// The linter checks the other rules, such as the allowed imports of each package (see .golangci.yml).
package architecture
