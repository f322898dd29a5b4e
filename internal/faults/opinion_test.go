package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	streams "millrace/internal/cliclient/audit"
)

// wantSecondOpinion checks that `worker audit` finds one outcome for each input, in the correct order. Call it once
// every input is settled.
func (r *rig) wantSecondOpinion() {
	r.t.Helper()
	if notes := r.secondOpinion(1); len(notes) > 0 {
		r.t.Errorf("worker audit: %q", notes)
	}
}

// wantSecondOpinionFrom does the same for the inputs from sequence first on. The order may be unchecked if the streams
// don't guarantee one.
func (r *rig) wantSecondOpinionFrom(first uint64) {
	r.t.Helper()
	for _, note := range r.secondOpinion(first) {
		if !strings.HasPrefix(note, "the order isn't checked") {
			r.t.Errorf("worker audit: %s", note)
		}
	}
}

// secondOpinion checks the outcomes of all inputs from sequence first on, and returns the audit's notes.
func (r *rig) secondOpinion(first uint64) (notes []string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.Ctx(), r.binary, "audit", "--json", fmt.Sprint("--from=", first))
	cmd.Env = append(r.environment(r.URL), r.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var report streams.Report
	if bad := json.Unmarshal(out.Bytes(), &report); bad != nil {
		r.t.Errorf("worker audit: %v, %v: %s", err, bad, errs.String())
		return nil
	}
	if settled := report.Results + report.DeadLetters; err != nil || report.Inputs() == 0 || settled != report.Inputs() {
		r.t.Errorf("worker audit: %v: %d of %d inputs are settled:\n%s", err, settled, report.Inputs(), out.String())
	}
	return report.Notes
}
