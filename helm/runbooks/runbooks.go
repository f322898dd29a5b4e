// Package runbooks knows where the runbooks are. Its tests read the pages in docs/runbooks: each belongs to an alert, names only
// values, variables, metrics and panels that exist, and has commands that can be pasted. Start reading with pages_test.go.
package runbooks

// Address is the address of the folder docs/runbooks in the links of the rules and of the dashboard. Its domain is reserved and
// leads nowhere, because the project has no public address yet. The chart's prometheusRule.runbooks replaces it.
const Address = "https://millrace.example/docs/runbooks"
