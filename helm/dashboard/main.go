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
func build() object {
	return object{
		"uid": "millrace", "title": "Millrace", "tags": []string{"millrace", "gpu", "nats"},
		"description":   "Workers that feed GPUs from NATS: a payload's way from left to right, then each part of it.",
		"schemaVersion": schemaVersion, "version": 1, "editable": true, "refresh": "30s", "timezone": "browser",
		"graphTooltip": 1, // one crosshair in all panels
		"time":         object{"from": "now-1h", "to": "now"},
		"links": []object{{
			"title": "Runbooks", "url": "${runbooks}/README.md", "targetBlank": true, "type": "link", "icon": "doc", "tags": []string{},
			"tooltip": "What each alert means, and what to do", "asDropdown": false, "includeVars": false, "keepTime": false,
		}},
		"templating":  object{"list": variables()},
		"annotations": object{"list": []object{restartsOfWorkers()}},
		"panels":      panels(),
	}
}

// width is the width of Grafana's grid.
const width = 24

// panels returns the headings of all rows, each followed by the row's panels, from left to right, in as many lines as
// necessary.
func panels() (all []*panel) {
	open, y := false, 0
	for _, r := range rows() {
		all = append(all, &panel{ID: len(all) + 1, Type: "row", Title: r.title, Collapsed: &open, GridPos: grid{H: 1, W: width, Y: y}})
		x, height := 0, 0
		y++
		for _, p := range r.panels {
			if x+p.GridPos.W > width {
				x, y, height = 0, y+p.GridPos.H, 0
			}
			p.ID, p.GridPos.X, p.GridPos.Y = len(all)+1, x, y
			x, height = x+p.GridPos.W, max(height, p.GridPos.H)
			all = append(all, p)
		}
		y += height
	}
	return all
}

// variables returns the settings that a reader can choose: the data source, the workers, and the device.
func variables() []object {
	const pages = "https://millrace.example/docs/runbooks" // runbooks.Address
	list := []object{{
		"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
		"current": object{}, "options": []any{}, "hide": 0,
	}}
	for _, v := range []struct{ name, label, query string }{
		{"namespace", "Namespace", `label_values(millrace_build_info, namespace)`},
		{"pod", "Pod", `label_values(millrace_build_info{namespace=~"$namespace"}, pod)`},
		{"device", "Device", `label_values(millrace_device_busy_seconds_total{namespace=~"$namespace",pod=~"$pod"}, device)`},
	} {
		list = append(list, object{
			"name": v.name, "label": v.label, "type": "query", "definition": v.query, "datasource": prometheus,
			"query":   object{"query": v.query, "refId": "variable-" + v.name},
			"refresh": 2,                                          // updated when the time range changes
			"sort":    1,                                          // by name
			"multi":   true, "includeAll": true, "allValue": ".*", // without Kubernetes there is no pod
			"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}, "options": []any{}, "hide": 0,
		})
	}
	return append(list, object{
		"name": "runbooks", "label": "Runbooks at", "type": "textbox", "query": pages,
		"current": object{"selected": true, "text": pages, "value": pages}, "options": []any{}, "hide": 0,
	})
}

// restartsOfWorkers adds a mark to every graph at each start of a worker.
func restartsOfWorkers() object {
	return object{
		"name": "Starts of workers", "enable": true, "hide": false, "iconColor": "purple", "datasource": prometheus,
		"expr": `changes(process_start_time_seconds{` + worker + `}[2m]) > 0 and on (instance, job) millrace_build_info{` + worker + `}`,
		"step": "60s", "titleFormat": "started", "textFormat": "{{pod}} {{instance}}",
	}
}
