// Package dashboard tests the Grafana dashboard in helm/millrace/files/dashboard.json. The dashboard must show every metric of the
// worker. Every query must use metrics, labels and values that exist. To change the dashboard, edit the file, or edit the dashboard in
// Grafana and export it. Start reading with dashboard_test.go.
package dashboard
