// Command dashboard writes the Grafana dashboard of helm/millrace/files/dashboard.json:
//
//	go run ./dashboard > millrace/files/dashboard.json
//
// A dashboard's JSON has thousands of lines in which panels are hard to find. Here each row is a function, and each panel
// consists of a title, a description, a unit and queries. Start reading with rows.go.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// write writes the dashboard as JSON.
func write(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false) // keep the queries readable
	e.SetIndent("", "  ")
	return e.Encode(build())
}

// build returns the complete dashboard.
func build() dashboard {
	d := dashboard{
		UID: "millrace", Title: "Millrace", Tags: []string{"millrace", "gpu", "nats"},
		Description:   "Workers that feed GPUs from NATS: a payload's way from left to right, then each part of it.",
		SchemaVersion: schemaVersion, Version: 1, Editable: true, GraphTooltip: 1, Refresh: "30s", Timezone: "browser",
		Time: timeRange{From: "now-1h", To: "now"},
		Links: []pageLink{{
			link: link{Title: "Runbooks", URL: "${runbooks}/README.md", TargetBlank: true},
			Type: "link", Icon: "doc", Tooltip: "What each alert means, and what to do", Tags: []string{},
		}},
		Templating:  templating{List: variables()},
		Annotations: listOf{List: []any{restartsOfWorkers()}},
	}
	for _, r := range rows() {
		d.add(r)
	}
	return d
}

// width is the width of Grafana's grid.
const width = 24

// add appends a row's heading and its panels, from left to right, in as many lines as necessary.
func (d *dashboard) add(r row) {
	y := 0
	for _, p := range d.Panels {
		y = max(y, p.GridPos.Y+p.GridPos.H)
	}
	open := false
	heading := &panel{ID: len(d.Panels) + 1, Type: "row", Title: r.title, Collapsed: &open, GridPos: grid{H: 1, W: width, Y: y}}
	d.Panels = append(d.Panels, heading)
	x := 0
	y++
	for _, p := range r.panels {
		if x+p.GridPos.W > width {
			x, y = 0, y+p.GridPos.H
		}
		p.ID, p.GridPos.X, p.GridPos.Y = len(d.Panels)+1, x, y
		x += p.GridPos.W
		d.Panels = append(d.Panels, p)
	}
}

// variables returns what a reader can select: the data source, the workers, and the device.
func variables() []variable {
	list := []variable{
		{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus", Options: []any{}},
	}
	for _, v := range []struct{ name, label, query string }{
		{"namespace", "Namespace", `label_values(millrace_build_info, namespace)`},
		{"pod", "Pod", `label_values(millrace_build_info{namespace=~"$namespace"}, pod)`},
		{"device", "Device", `label_values(millrace_device_busy_seconds_total{namespace=~"$namespace",pod=~"$pod"}, device)`},
	} {
		list = append(list, variable{
			Name: v.name, Label: v.label, Type: "query", Definition: v.query, Datasource: prometheus,
			Query:   map[string]any{"query": v.query, "refId": "variable-" + v.name},
			Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".*", // without Kubernetes there is no pod
			Current: choice{Selected: true, Text: []string{"All"}, Value: []string{"$__all"}}, Options: []any{},
		})
	}
	const pages = "docs/runbooks"
	return append(list, variable{
		Name: "runbooks", Label: "Runbooks at", Type: "textbox", Query: pages,
		Current: choice{Selected: true, Text: pages, Value: pages}, Options: []any{},
	})
}

// restartsOfWorkers marks in every graph when a worker started.
func restartsOfWorkers() any {
	return map[string]any{
		"name": "Starts of workers", "enable": true, "hide": false, "iconColor": "purple", "datasource": prometheus,
		"expr": `changes(process_start_time_seconds{` + worker + `}[2m]) > 0 and on (instance, job) millrace_build_info{` + worker + `}`,
		"step": "60s", "titleFormat": "started", "textFormat": "{{pod}} {{instance}}",
	}
}
