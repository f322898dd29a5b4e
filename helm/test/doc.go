// Package test tests the chart. It renders the chart in every mode, decodes the result strictly into the types of
// Kubernetes, the Prometheus operator and KEDA, and tries wrong values. It is a separate module, so that its dependencies
// don't become dependencies of the worker. Run it with `make chart-test`, and start reading with render_test.go.
package test
