// Package dashboard tests the Grafana dashboard in helm/millrace/files/dashboard.json: every metric of the worker is on it, every query
// asks for metrics, labels and values that exist, and the panels are complete. Edit the file, or edit the dashboard in Grafana and export
// it. Start reading with dashboard_test.go.
package dashboard
