package main

import "maps"

// prometheus is the data source that the dashboard's variable selects.
var prometheus = object{"type": "prometheus", "uid": "${datasource}"}

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
	p := &panel{
		Type: kind, Title: title, Description: description, Datasource: prometheus, GridPos: grid{W: w, H: h},
		FieldConfig: &fieldConfig{Defaults: object{}, Overrides: []any{}},
	}
	if unit != "" {
		p.FieldConfig.Defaults["unit"] = unit
	}
	return p
}

// stat returns a panel with one figure and its history: a step of a payload's path.
func stat(title, description, unit string) *panel {
	p := newPanel("stat", title, description, unit, 3, 5)
	p.FieldConfig.Defaults["color"] = object{"mode": "thresholds"}
	p.Options = object{
		"graphMode": "area", "colorMode": "value", "textMode": "value_and_name", "justifyMode": "auto", "orientation": "auto",
		"wideLayout": false, "reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p.steps(plain)
}

// graph returns lines over time, with the last and the maximum value of each in a table below.
func graph(title, description, unit string, w int) *panel {
	p := newPanel("timeseries", title, description, unit, w, 8)
	p.FieldConfig.Defaults["min"] = 0
	p.FieldConfig.Defaults["color"] = object{"mode": "palette-classic"}
	p.custom(object{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false,
		"stacking":        object{"mode": "none", "group": "A"},
		"thresholdsStyle": object{"mode": "off"},
	})
	p.Options = object{
		"legend":  object{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	return p
}

// share returns a graph from 0 to 100 %.
func share(title, description string, w int) *panel {
	p := graph(title, description, "percentunit", w)
	p.FieldConfig.Defaults["max"] = 1
	return p
}

// heat returns a histogram over time.
func heat(title, description string, w int) *panel {
	p := newPanel("heatmap", title, description, "", w, 8)
	p.custom(object{"scaleDistribution": object{"type": "linear"}})
	p.Options = object{
		"calculate": false, "cellGap": 1, "rowsFrame": object{"layout": "auto"}, "showValue": "never",
		"yAxis":        object{"axisPlacement": "left", "unit": "s", "reverse": false},
		"color":        object{"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64, "reverse": false, "fill": "dark-orange"},
		"tooltip":      object{"mode": "single", "yHistogram": true, "showColorScale": true},
		"legend":       object{"show": true},
		"exemplars":    object{"color": "rgba(255,0,255,0.7)"},
		"filterValues": object{"le": 1e-9},
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
	return p.custom(object{"stacking": object{"mode": "normal", "group": "A"}, "fillOpacity": 40})
}

// plain is the colour of panels in which no value is better than another.
var plain = []object{{"color": "blue", "value": nil}}

// above returns thresholds that are green below that value and have another colour from it upwards.
func above(value float64, color string) []object { return steps("green", value, color) }

// below returns thresholds that are green from that value upwards and have another colour below it.
func below(value float64, color string) []object { return steps(color, value, "green") }

func steps(first string, value float64, second string) []object {
	return []object{{"color": first, "value": nil}, {"color": second, "value": value}}
}

// custom sets options of the panel's kind.
func (p *panel) custom(options object) *panel {
	if p.FieldConfig.Defaults["custom"] == nil {
		p.FieldConfig.Defaults["custom"] = object{}
	}
	maps.Copy(p.FieldConfig.Defaults["custom"].(object), options)
	return p
}

func (p *panel) steps(s []object) *panel {
	p.FieldConfig.Defaults["thresholds"] = object{"mode": "absolute", "steps": s}
	return p
}

// line draws a graph's threshold, which is that of the alert for the same figure.
func (p *panel) line(s []object) *panel {
	return p.custom(object{"thresholdsStyle": object{"mode": "line"}}).steps(s)
}

// runbook adds links to the runbooks of the alerts that the panel explains.
func (p *panel) runbook(alerts ...string) *panel {
	for _, a := range alerts {
		p.Links = append(p.Links, link("Runbook: "+a, "${runbooks}/"+a+".md"))
	}
	return p
}
