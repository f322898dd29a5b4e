// Package test holds the tests of the chart: rendered in every mode, decoded strictly into the types of Kubernetes, the
// Prometheus operator and KEDA, and given wrong values. It is a module of its own, so that none of what it needs becomes a
// dependency of the worker.
package test
