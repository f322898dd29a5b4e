// Package rules tests the Prometheus rules in helm/millrace/files/rules.yaml. The YAML files in this folder are tests for
// promtool: the results of each alert and each recording rule for given series. The Go tests check that every alert has a
// test in which it fires, a test in which it doesn't, and a page in docs/runbooks, and that every metric exists. Run them with
// `make alerts-test`, and start reading with rules_test.go.
package rules
