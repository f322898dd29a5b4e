package main

// This file has the part of Grafana's classic dashboard model with fields that differ from panel to panel. The constant
// part is an object, as Grafana exports it.

// object is a JSON object.
type object = map[string]any

// schemaVersion is the version of Grafana 12.2 to 12.4. Older versions can read it, and later ones migrate it.
const schemaVersion = 42

type panel struct {
	ID              int          `json:"id"`
	Type            string       `json:"type"`
	Title           string       `json:"title"`
	Description     string       `json:"description,omitempty"`
	GridPos         grid         `json:"gridPos"`
	Datasource      object       `json:"datasource,omitempty"`
	Links           []object     `json:"links,omitempty"`
	FieldConfig     *fieldConfig `json:"fieldConfig,omitempty"`
	Options         object       `json:"options,omitempty"`
	Targets         []target     `json:"targets,omitempty"`
	Transformations []object     `json:"transformations,omitempty"`
	Collapsed       *bool        `json:"collapsed,omitempty"`
}

type grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string `json:"refId"`
	Datasource   object `json:"datasource"`
	EditorMode   string `json:"editorMode"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Format       string `json:"format,omitempty"`
	Instant      bool   `json:"instant,omitempty"`
	Range        bool   `json:"range"`
}

type fieldConfig struct {
	Defaults  object `json:"defaults"`
	Overrides []any  `json:"overrides"`
}

// link returns a link that opens in a new tab.
func link(title, url string) object { return object{"title": title, "url": url, "targetBlank": true} }
