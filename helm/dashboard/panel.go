package main

import "fmt"

// prometheus is the data source that the dashboard's variable selects.
var prometheus = &source{Type: "prometheus", UID: "${datasource}"}

// query is an expression and the legend of its series.
type query struct{ expr, legend string }

func (p *panel) ask(queries ...query) *panel {
	for _, q := range queries {
		p.Targets = append(p.Targets, target{
			RefID: string(rune('A' + len(p.Targets))), Datasource: prometheus, EditorMode: "code",
			Expr: q.expr, LegendFormat: q.legend, Range: true,
		})
	}
	return p
}

func newPanel(kind, title, description, unit string, w, h int) *panel {
	return &panel{
		Type: kind, Title: title, Description: description, Datasource: prometheus, GridPos: grid{W: w, H: h},
		FieldConfig: &fieldConfig{Defaults: defaults{Unit: unit}, Overrides: []any{}},
	}
}

// stat returns a panel with one figure and its history: a step of a payload's path.
func stat(title, description, unit string) *panel {
	p := newPanel("stat", title, description, unit, 3, 5)
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "thresholds"}
	p.Options = map[string]any{
		"graphMode": "area", "colorMode": "value", "textMode": "value_and_name", "justifyMode": "auto", "orientation": "auto",
		"wideLayout": false, "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p.steps(plain)
}

// graph returns lines over time, with the last and the maximum value of each in a table below.
func graph(title, description, unit string, w int) *panel {
	p := newPanel("timeseries", title, description, unit, w, 8)
	zero := 0.0
	p.FieldConfig.Defaults.Min = &zero
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "palette-classic"}
	p.FieldConfig.Defaults.Custom = map[string]any{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false,
		"stacking":        map[string]any{"mode": "none", "group": "A"},
		"thresholdsStyle": map[string]any{"mode": "off"},
	}
	p.Options = map[string]any{
		"legend":  map[string]any{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// share returns a graph from 0 to 100 %.
func share(title, description string, w int) *panel {
	p := graph(title, description, "percentunit", w)
	one := 1.0
	p.FieldConfig.Defaults.Max = &one
	return p
}

// heat returns a histogram over time.
func heat(title, description string, w int) *panel {
	p := newPanel("heatmap", title, description, "", w, 8)
	p.FieldConfig.Defaults.Custom = map[string]any{"scaleDistribution": map[string]any{"type": "linear"}}
	p.Options = map[string]any{
		"calculate": false, "cellGap": 1, "rowsFrame": map[string]any{"layout": "auto"}, "showValue": "never",
		"yAxis":        map[string]any{"axisPlacement": "left", "unit": "s", "reverse": false},
		"color":        map[string]any{"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64, "reverse": false, "fill": "dark-orange"},
		"tooltip":      map[string]any{"mode": "single", "yHistogram": true, "showColorScale": true},
		"legend":       map[string]any{"show": true},
		"exemplars":    map[string]any{"color": "rgba(255,0,255,0.7)"},
		"filterValues": map[string]any{"le": 1e-9},
	}
	return p
}

func (p *panel) buckets(expr string) *panel {
	p.ask(query{expr, "{{le}}"})
	p.Targets[0].Format = "heatmap"
	return p
}

// stacked stacks the series of a graph.
func (p *panel) stacked() *panel {
	p.FieldConfig.Defaults.Custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
	p.FieldConfig.Defaults.Custom["fillOpacity"] = 40
	return p
}

// plain is the colour of panels in which no value is better than another.
var plain = []step{{Color: "blue"}}

// above returns thresholds that are green below that value and have another colour from there on.
func above(value float64, color string) []step { return []step{{Color: "green"}, {color, &value}} }

// below returns thresholds that are green from that value on and have another colour below it.
func below(value float64, color string) []step { return []step{{Color: color}, {"green", &value}} }

func (p *panel) steps(s []step) *panel {
	p.FieldConfig.Defaults.Thresholds = &thresholds{Mode: "absolute", Steps: s}
	return p
}

// line draws a threshold into a graph: that of the alert for the same figure.
func (p *panel) line(s []step) *panel {
	p.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "line"}
	return p.steps(s)
}

// runbook adds links to the runbooks of the alerts that the panel explains.
func (p *panel) runbook(alerts ...string) *panel {
	for _, a := range alerts {
		p.Links = append(p.Links, link{Title: "Runbook: " + a, URL: fmt.Sprintf("${runbooks}/%s.md", a), TargetBlank: true})
	}
	return p
}
