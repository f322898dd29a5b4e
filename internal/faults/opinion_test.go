package faults

import (
	"bytes"
	"encoding/json"
	"os/exec"

	streams "millrace/internal/exchange/audit"
)

// wantSecondOpinion checks, when every input is settled, that `worker audit` finds nothing wrong either: each input has one outcome.
func (r *rig) wantSecondOpinion() {
	r.t.Helper()
	cmd := exec.CommandContext(r.Ctx(), r.binary, "audit", "--json")
	cmd.Env = append(r.environment(r.URL), r.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var report streams.Report
	if bad := json.Unmarshal(out.Bytes(), &report); bad != nil {
		r.t.Errorf("worker audit: %v, %v: %s", err, bad, errs.String())
		return
	}
	if settled := report.Results + report.DeadLetters; err != nil || report.Inputs() == 0 || settled != report.Inputs() || len(report.Notes) > 0 {
		r.t.Errorf("worker audit: %v: %d of %d inputs are settled:\n%s", err, settled, report.Inputs(), out.String())
	}
}
