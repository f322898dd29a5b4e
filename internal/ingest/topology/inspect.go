package topology

import (
	"context"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/finding"
)

// Inspect checks the server, the streams and the consumers for the worker's use u.
func Inspect(ctx context.Context, nc *nats.Conn, l Topology, u Use) []finding.Finding {
	js, err := l.API.New(nc)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	i := &inspection{ctx: ctx, js: js, nc: nc, l: l, use: u, maxPayload: nc.MaxPayload(), cluster: nc.ConnectedClusterName()}
	server, streams := serverInspector{i}, streamInspector{i}
	if !server.inspect() {
		return i.findings
	}
	if !u.Frames.none() {
		i.results = i.limitOfResults()
		server.frames()
	}
	streams.input()
	resultInspector{streams}.inspect()
	deadLetterInspector{streams}.inspect()
	if l.Exclusive {
		partitionInspector{streams}.inspect()
	} else {
		consumerInspector{i}.inspect()
	}
	server.permissions()
	trimInspector{streams}.inspect() // runs after permissions, so its refused requests are only warnings
	return i.findings
}
