// Package runbooks has the address of the runbooks. Its tests check the pages in docs/runbooks. Each page belongs to an alert
// and names only values, variables, metrics and panels that exist. Users can paste its commands. Start reading with
// pages_test.go.
package runbooks

// Address is the address of the folder docs/runbooks in the links of the rules and of the dashboard. Its domain is reserved and
// has no server, because the project has no public address yet. The chart's prometheusRule.runbooks replaces it.
const Address = "https://millrace.example/docs/runbooks"
