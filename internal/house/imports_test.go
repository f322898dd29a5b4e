package house

import (
	"fmt"
	"slices"
	"strings"
)

// anything is what a room may import that wires the others.
const anything = "*"

// rooms says for each package what it may import of this repository outside its tests. Imports run one way:
// cmd -> ingest -> streams -> alloc, operator -> device. What is not listed does not exist: a new room is
// entered here, with what it may know.
var rooms = map[string][]string{
	"cmd/worker":    {anything},
	"internal/demo": {"internal/console", "internal/ingest", "internal/ingest/results", "internal/operator", "internal/streams"},

	"internal/plan":         {"internal/bench/report", "internal/streams", "internal/operator", "internal/device", "internal/device/sim"},
	"internal/bench":        {"internal/bench/report", "internal/console", "internal/streams", "internal/alloc", "internal/operator", "internal/device"},
	"internal/bench/report": nil,
	"internal/bench/broker": {"internal/bench", "internal/bench/report", "internal/console", "internal/ingest", "internal/ingest/natsconn", "internal/ingest/embedded", "internal/ingest/inflight", "internal/ingest/topology", "internal/ingest/pull", "internal/ingest/results", "internal/streams", "internal/operator", "internal/device"},

	"internal/config":    nil,
	"internal/memory":    nil,
	"internal/console":   {"internal/ingest", "internal/ingest/inflight"},
	"internal/loglimit":  nil,
	"internal/tracing":   {"internal/ingest/inflight", "internal/streams"},
	"internal/telemetry": {"internal/ingest", "internal/ingest/inflight", "internal/streams", "internal/device"},

	"internal/ingest":            {"internal/ingest/inflight", "internal/ingest/members", "internal/ingest/natsconn", "internal/ingest/partition", "internal/ingest/pull", "internal/ingest/quarantine", "internal/ingest/results", "internal/ingest/retry", "internal/ingest/topology", "internal/streams", "internal/operator", "internal/device"},
	"internal/ingest/natsconn":   {"internal/ingest/finding", "internal/ingest/pause"},
	"internal/ingest/embedded":   nil,
	"internal/ingest/finding":    nil,
	"internal/ingest/inflight":   {"internal/ingest/pull", "internal/operator", "internal/streams"},
	"internal/ingest/topology":   {"internal/ingest/finding", "internal/ingest/lookup", "internal/ingest/publisher"},
	"internal/ingest/lookup":     {"internal/ingest/pull"},
	"internal/ingest/members":    {"internal/ingest/partition"},
	"internal/ingest/partition":  nil,
	"internal/ingest/pull":       {"internal/ingest/pause"},
	"internal/ingest/pause":      nil,
	"internal/ingest/retry":      nil,
	"internal/ingest/quarantine": {"internal/ingest/inflight", "internal/ingest/natsconn", "internal/ingest/results", "internal/device", "internal/streams"},
	"internal/ingest/results":    {"internal/ingest/inflight", "internal/ingest/lookup", "internal/ingest/natsconn", "internal/ingest/pause", "internal/ingest/publisher", "internal/ingest/retry", "internal/ingest/topology", "internal/operator", "internal/streams"},
	"internal/ingest/publisher":  nil,
	"internal/streams":           {"internal/alloc", "internal/operator", "internal/device"},
	"internal/alloc":             {"internal/device"},
	"internal/operator":          {"internal/device"},

	"internal/device":      nil,
	"internal/device/cuda": {"internal/device"},
	"internal/device/host": {"internal/device"},
	"internal/device/sim":  {"internal/device"},

	// A module of its own, for what watches the workers.
	"helm/dashboard": nil,
	"helm/exposed":   nil,
	"helm/rules":     nil,

	// What tests are written with.
	"internal/device/conformance":           {"internal/device"},
	"internal/device/cuda/fakecuda":         nil,
	"internal/device/conformance/operators": {"internal/device/conformance", "internal/operator", "internal/operator/payloads"},
	"internal/operator/payloads":            nil,
	"internal/faults":                       nil,
	"internal/ingest/natstest":              nil,
	"internal/house":                        nil,
	"tools/image/test":                      nil,
	"tools/picture":                         nil,

	// The chart's tests, a module of its own.
	"helm/test": nil,
}

var importsRunOneWay = rule{
	name: "imports run one way",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			allowed, known := rooms[f.dir()]
			if !known {
				found = append(found, fmt.Sprintf("%s: package %s is no room that internal/house knows: enter it in rooms", f.path, f.dir()))
				continue
			}
			for _, target := range f.imports() {
				target, ours := strings.CutPrefix(target, module+"/")
				if ours && !mayImport(f, allowed, target) {
					found = append(found, fmt.Sprintf("%s: %s may not import %s: imports run one way", f.path, f.dir(), target))
				}
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/streams/a.go":      "package streams\nimport _ \"millrace/internal/ingest\"",
		"internal/streams/b.go":      "package streams\nimport _ \"millrace/internal/device\"",
		"internal/streams/c_test.go": "package streams\nimport _ \"millrace/internal/device/sim\"",
		"internal/streams/d_test.go": "package streams\nimport _ \"millrace/cmd/worker\"",
		"internal/ingest/a.go":       "package ingest\nimport _ \"millrace/internal/device/host\"",
		"internal/attic/a.go":        "package attic",
		"cmd/worker/main.go":         "package main\nimport _ \"millrace/internal/config\"",
	},
	findings: []string{
		"internal/attic/a.go: package internal/attic is no room that internal/house knows: enter it in rooms",
		"internal/ingest/a.go: internal/ingest may not import internal/device/host: imports run one way",
		"internal/streams/a.go: internal/streams may not import internal/ingest: imports run one way",
		"internal/streams/d_test.go: internal/streams may not import cmd/worker: imports run one way",
	},
}

// mayImport lets tests have whatever they need but the commands.
func mayImport(f textFile, allowed []string, target string) bool {
	if f.isTest() {
		return !strings.HasPrefix(target, "cmd/")
	}
	return slices.Contains(allowed, anything) || slices.Contains(allowed, target)
}

var cStaysInCUDA = rule{
	name: "one file speaks C",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			if slices.Contains(f.imports(), "C") && f.path != "internal/device/cuda/call.go" {
				found = append(found, f.path+`: imports "C", which internal/device/cuda/call.go alone does: put the call there`)
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/device/cuda/call.go":  "package cuda\nimport \"C\"",
		"internal/device/cuda/other.go": "package cuda\nimport \"C\"",
		"internal/alloc/a.go":           "package alloc\nimport \"C\"",
	},
	findings: []string{
		`internal/alloc/a.go: imports "C", which internal/device/cuda/call.go alone does: put the call there`,
		`internal/device/cuda/other.go: imports "C", which internal/device/cuda/call.go alone does: put the call there`,
	},
}

// clients says which rooms know a module from outside. The commands wire them, and tests may use them.
var clients = map[string][]string{
	"github.com/nats-io/":             {"internal/ingest", "internal/ingest/inflight", "internal/ingest/quarantine", "internal/ingest/results", "internal/ingest/natsconn", "internal/ingest/embedded", "internal/ingest/topology", "internal/ingest/lookup", "internal/ingest/members", "internal/ingest/pull", "internal/ingest/publisher", "internal/ingest/natstest", "internal/demo", "internal/bench/broker"},
	"github.com/synadia-io/orbit.go/": {"internal/ingest/publisher", "internal/bench/broker"},
	"github.com/prometheus/":          {"internal/telemetry", "helm/exposed"},
	"go.opentelemetry.io/otel":        {"internal/tracing"},
	"github.com/go-logr/":             {"internal/tracing"},
	"github.com/kelseyhightower/":     {"internal/config"},
	"github.com/lmittmann/tint":       nil,
	"golang.org/x/term":               {"internal/console"},
	"golang.org/x/sys":                {"internal/device/cuda"},
	"github.com/nats-io/nats-server/": {"internal/ingest/embedded", "internal/ingest/natstest"},
}

var clientsStayInTheirRoom = rule{
	name: "outside modules stay in the room that is for them",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			if f.isTest() || strings.HasPrefix(f.path, "cmd/") {
				continue
			}
			for _, target := range f.imports() {
				if !isOutside(target) {
					continue
				}
				client := longestClient(target)
				if client == "" {
					found = append(found, fmt.Sprintf("%s: imports %s, which no room is named for: enter it in clients", f.path, target))
				} else if !slices.Contains(clients[client], f.dir()) {
					found = append(found, fmt.Sprintf("%s: %s may not import %s: see clients in internal/house", f.path, f.dir(), target))
				}
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/streams/a.go":      "package streams\nimport _ \"github.com/nats-io/nats.go\"",
		"internal/streams/b.go":      "package streams\nimport _ \"example.com/somebody/something\"",
		"internal/streams/c_test.go": "package streams\nimport _ \"github.com/nats-io/nats.go\"",
		"internal/ingest/a.go":       "package ingest\nimport _ \"github.com/nats-io/nats.go\"",
		"internal/ingest/b.go":       "package ingest\nimport _ \"github.com/nats-io/nats-server/v2/server\"",
	},
	findings: []string{
		"internal/ingest/b.go: internal/ingest may not import github.com/nats-io/nats-server/v2/server: see clients in internal/house",
		"internal/streams/a.go: internal/streams may not import github.com/nats-io/nats.go: see clients in internal/house",
		"internal/streams/b.go: imports example.com/somebody/something, which no room is named for: enter it in clients",
	},
}

// isOutside says whether a path is neither the standard library's nor this repository's: its first element is
// then a host's name.
func isOutside(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return strings.Contains(first, ".")
}

// longestClient is the entry of clients that fits target best; empty for none.
func longestClient(target string) string {
	best := ""
	for prefix := range clients {
		if strings.HasPrefix(target, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return best
}
