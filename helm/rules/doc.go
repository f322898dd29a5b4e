// Package rules tests the rules for Prometheus in helm/millrace/files/rules.yaml. The YAML files here are promtool's: what
// each alert and each recording rule says of given series. The Go tests hold them and the rules together: no alert without
// a test in which it fires and one in which it does not, none without a page in docs/runbooks, no metric that nobody exposes.
package rules
