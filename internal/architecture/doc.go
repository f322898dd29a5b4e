// Package architecture checks the rules of this repository that neither the compiler nor a linter can check: which file may import C,
// how long a source file may be, that files of ingest refer to each other one way and don't share the methods of a type with many
// others, that a skipped test gives a reason, and that documents refer only to existing things.
//
// The package has no code, only tests. TestArchitecture checks the repository. TestRulesFindViolations checks each rule
// on a small tree that breaks it. Start reading at rules_test.go.
//
// The linter checks the other rules, such as which package may import which: see .golangci.yml.
package architecture
