// Package rules tests the Prometheus rules in helm/millrace/files/rules.yaml. The YAML files in this folder are tests for
// promtool. They contain the results of each alert and each recording rule for given series. The Go tests check that every
// metric exists, and that every alert has a page in docs/runbooks. Every alert must fire in one test and must not fire in
// another. Run the tests with `make alerts-test`, and start reading with rules_test.go.
package rules
