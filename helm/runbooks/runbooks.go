// Package runbooks has the address of the runbooks. Each page in docs/runbooks belongs to an alert. The tests check that the
// values, variables, metrics and panels on the pages exist, and that users can paste the commands. Start reading with
// pages_test.go.
package runbooks

// Address is the address of the folder docs/runbooks in the links of the rules and of the dashboard. Its domain is reserved and
// has no server, because the project has no public address yet. The chart's prometheusRule.runbooks replaces it.
const Address = "https://millrace.example/docs/runbooks"
