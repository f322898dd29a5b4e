package main

// This file has the part of Grafana's classic dashboard model that is used here, with the fields that Grafana exports.

// schemaVersion is the version of Grafana 12.2 to 12.4. Older versions can read it, and later ones migrate it.
const schemaVersion = 42

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Version       int        `json:"version"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"` // 1: one crosshair in all panels
	Refresh       string     `json:"refresh"`
	Timezone      string     `json:"timezone"`
	Time          timeRange  `json:"time"`
	Links         []pageLink `json:"links"`
	Templating    templating `json:"templating"`
	Annotations   listOf     `json:"annotations"`
	Panels        []*panel   `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type listOf struct {
	List []any `json:"list"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"`
	Query      any     `json:"query"`
	Definition string  `json:"definition,omitempty"`
	Datasource *source `json:"datasource,omitempty"`
	Refresh    int     `json:"refresh,omitempty"` // 2: when the time range changes
	Sort       int     `json:"sort,omitempty"`    // 1: by name
	IncludeAll bool    `json:"includeAll,omitempty"`
	AllValue   string  `json:"allValue,omitempty"`
	Multi      bool    `json:"multi,omitempty"`
	Current    choice  `json:"current"`
	Options    []any   `json:"options"`
	Hide       int     `json:"hide"`
}

type choice struct {
	Selected bool `json:"selected,omitempty"`
	Text     any  `json:"text,omitempty"`
	Value    any  `json:"value,omitempty"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// link is a link on a panel or a value.
type link struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	TargetBlank bool   `json:"targetBlank"`
}

// pageLink is a link on the whole dashboard.
type pageLink struct {
	link
	Type        string   `json:"type"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	GridPos         grid             `json:"gridPos"`
	Datasource      *source          `json:"datasource,omitempty"`
	Links           []link           `json:"links,omitempty"`
	FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
	Options         map[string]any   `json:"options,omitempty"`
	Targets         []target         `json:"targets,omitempty"`
	Transformations []transformation `json:"transformations,omitempty"`
	Collapsed       *bool            `json:"collapsed,omitempty"`
	Panels          []*panel         `json:"panels,omitempty"`
}

type grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string  `json:"refId"`
	Datasource   *source `json:"datasource"`
	EditorMode   string  `json:"editorMode"`
	Expr         string  `json:"expr"`
	LegendFormat string  `json:"legendFormat"`
	Format       string  `json:"format,omitempty"`
	Instant      bool    `json:"instant,omitempty"`
	Range        bool    `json:"range"`
}

type fieldConfig struct {
	Defaults  defaults `json:"defaults"`
	Overrides []any    `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	Max        *float64       `json:"max,omitempty"`
	Decimals   *int           `json:"decimals,omitempty"`
	Color      map[string]any `json:"color,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
	Thresholds *thresholds    `json:"thresholds,omitempty"`
	Links      []link         `json:"links,omitempty"`
	Mappings   []any          `json:"mappings,omitempty"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

// step is a threshold that begins at Value. The Value of the first step is nil.
type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}
