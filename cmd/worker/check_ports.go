package main

import (
	"fmt"
	"net"

	"millrace/internal/config"
	"millrace/internal/ingest/finding"
)

// checkPorts reports whether the worker could listen on the addresses of its HTTP servers. A taken port is only a warning, because a worker
// that runs already, such as the one in a pod, has it.
func checkPorts(cfg *config.Config) (findings []finding.Finding) {
	for _, a := range []struct{ variable, address string }{{"MILLRACE_HTTP_ADDR", cfg.HTTPAddr}, {"MILLRACE_DEBUG_ADDR", cfg.DebugAddr}} {
		if a.address == "" {
			continue
		}
		f := finding.Finding{What: a.variable, Found: fmt.Sprintf("the worker can listen on %s", a.address)}
		l, err := net.Listen("tcp", a.address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			f.Level, f.Found = finding.Warning, err.Error()
			f.Advice = "a worker that starts now fails; if none is running here, set another port in " + a.variable
		}
		findings = append(findings, f)
	}
	return findings
}
