package lease

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutation is a fault in the code of a lease. TestModelFindsMutations replaces old, which occurs once in the file, by
// new, and a model or a test must then report a violation.
type mutation struct {
	fault, file, old, new string
}

// stateLogFile is the file with the rules of a state's log. Mutations of it run against the tests of its package, which have their own model.
const stateLogFile = "../statelog/statelog.go"

// mutations lists the faults in the order in which a lease runs.
var mutations = []mutation{
	{"a lease takes deliveries of a later turn", "partition.go", "case d.Turn != p.turn:", "case d.Turn != p.turn && false:"},
	{"a new lease ignores the annotated last delivery for the duplicate window", "partition.go", "p.before = delivered(left)", "p.before = 0"},
	{"the pin isn't renewed", "partition.go", "err = p.pulled.Keep()", "err = nil"},
	{"a lost last acknowledgement isn't repeated", "partition.go", "p.acks.repeatLast(drainCtx, info)\n", "\n"},
	{"an over-acknowledged consumer isn't repaired while idle", "partition.go", "case pinnedTo(info, p.pinned()) && isOverAcknowledged(info):", "case false:"},
	{"missing deliveries aren't read while idle", "partition.go", "return p.fill(ctx, drainCtx, info, taken) //", "return nil //"},

	{"inputs are read although another worker is pinned", "partition.go", "case !pinnedTo(info, p.pinned()):", "case false:"},
	{"an over-acknowledged consumer isn't repaired at a gap", "partition.go", "case isOverAcknowledged(info):", "case false:"},
	{"a consumer that was reset is read at a gap", "partition.go", "case last.Consumer < arrived:", "case false:"},
	{"the last delivered input isn't read", "partition.go", "p.stored.between(ctx, from, last.Stream+1)", "p.stored.between(ctx, from, last.Stream)"},
	{"the first missing input isn't read", "partition.go", "p.stored.between(ctx, from, last.Stream+1)", "p.stored.between(ctx, from+1, last.Stream+1)"},
	{"a lease doesn't record that it has caught up", "partition.go", "p.acks.caughtUp(last)", "_ = last"},
	{"an input that was delivered before counts as new", "partition.go", "if d.Sequence <= p.before {", "if false {"},
	{"an input with a committed result is computed again", "inputs.go", "case known:", "case known && d == nil:"},
	{"a condemned payload is computed again", "caution.go", "case !condemned:", "case !condemned || d.Msg != nil:"},
	{"a dead letter overtakes earlier results", "upto.go", "if u.ordered && !u.awaitFirst(ctx) {", "if u.ordered && ctx.Err() != nil {"},
	{"an input is acknowledged although its dead letter isn't stored", "upto.go", "why, cause); err != nil {", "why, cause); err != nil && d.Msg == nil {"},
	{"equal consumer sequences don't count as over-acknowledged", "state.go", "acknowledged > delivered || acknowledged == delivered && info.NumAckPending > 0", "acknowledged > delivered"},
	{"a repair skips delivered inputs", "state.go", "l.server.reset(ctx, info.AckFloor.Stream+1); err", "l.server.reset(ctx, info.Delivered.Stream+1); err"},

	{"a missing delivery isn't noticed", "upto.go", "case !next:", "case !next && f == nil:"},
	{"unsettled inputs are acknowledged", "upto.go", "f.first < len(f.inputs) && f.inputs[f.first].done", "f.first < len(f.inputs)"},
	{"a redelivery counts as an input that was read", "upto.go", "case sequence <= f.highest && number <= f.delivered:", "case sequence <= f.highest:"},
	{"a lease starts before the acknowledgement floor", "upto.go", "newFloor(floor.Stream)", "newFloor(0)"},
	{"all inputs that were read get the last consumer sequence", "upto.go", "u.number = min(u.number+1, limit)", "u.number = limit"},
	{"the token of an acknowledged dead letter is kept", "upto.go", "if s <= sequence {", "if s < sequence {"},

	{"a death of the last owner isn't noticed", "caution.go", "dead && owner != c.id {", "dead && owner == c.id {"},
	{"the payload that ran alone isn't accused", "caution.go", "c.accused, c.blamed = alone, left[annotationBlamed]", "c.blamed = left[annotationBlamed]; _ = alone"},
	{"a payload is condemned after a single death", "caution.go", "return behind == c.due.Floor && c.due.giveUp()", "return behind == c.due.Floor"},
	{"annotations of another owner are changed", "caution.go", "if info.Config.Metadata[annotationOwner] != n.id {", "if info.Config.Metadata == nil {"},
	{"the last delivery isn't annotated", "caution.go", "max(info.Delivered.Stream, delivered(metadata), taken)", "0*max(info.Delivered.Stream, delivered(metadata), taken)"},
	{"the batch of cautious leases isn't limited", "caution.go", "return true, c.due.batchPayloads(limit)", "return true, limit"},
	{"a caution never ends", "caution.go", "c.due = c.due.relaxed(floor)", "_ = floor"},
	{"every death counts against the first payload", "caution.go", "if onDevice {", "if onDevice || floor > 0 {"},
	{"a death doesn't shrink the batches", "caution.go", "next.Deaths = min(c.Deaths+1, alone)", "next.Deaths = min(c.Deaths, alone)"},

	{"the payload that runs alone isn't annotated", "pack.go", "if err := s.notes.annotate(ctx, map[string]string{annotationAlone: s.caution.trial(g)}); err != nil {", "if err := ctx.Err(); err != nil {"},
	{"the annotation of a payload that ran alone stays", "pack.go", "return s.notes.annotate(ctx, map[string]string{annotationAlone: \"\"})", "return nil"},
	{"batches are stored after an earlier one failed", "pack.go", "s.fail(err)\n\t\t\t\tbroken = true", "s.fail(err)"},
	{"a batch is acknowledged although it isn't stored", "inputs.go", "if err == nil {\n\t\terr = i.ack.flush", "if err == nil || g.Err == nil {\n\t\terr = i.ack.flush"},

	{"a lease ends before the server has its unsubscription", "lease.go", "err := l.server.flush(ctx)", "err := ctx.Err()"},
	{"a lease ends without a confirmed last acknowledgement", "lease.go", "err = confirm(ctx, last)", "err = ctx.Err()"},
	{"a comparison that killed a worker is repeated", "lease.go", "if l.caution.comparing {", "if l.caution.comparing && false {"},
	{"a payload that fails alone isn't refused", "../quarantine/rerun.go", "r.Batch.Refuse(i, a.Err)\n\t\treturn", "return"},
	{"a record that fails alone isn't marked", "../quarantine/rerun.go", "f.Mark(i, record.OperatorError)", "_ = record.OperatorError"},
	{"a lease that ends well stays annotated", "lease.go", "return l.notes.annotate(ctx, changes)", "return nil"},
	{"a lease unpins another worker", "lease.go", "if err != nil || !pinnedTo(info, l.partition.pinID()) {", "if err != nil {"},

	{"a dead letter that isn't stored ends its input", "each.go", "why, cause) != nil {\n\t\treturn false", "why, cause) != nil && d == nil {\n\t\treturn false"},
	{"an input without a dead letter is neither settled nor given back", "each.go", "e.nak(&d, d.NakDelay())", "_ = d"},
	{"unread deliveries keep their memory", "each.go", "\t\te.nak(&d, 0)\n\t\te.o.Pool.Release(&d)\n\t}\n}", "\t\te.nak(&d, 0)\n\t}\n}"},
	{"unread deliveries aren't given back", "each.go", "takeAll() {\n\t\te.nak(&d, 0)\n", "takeAll() {\n"},
	{"payloads of dead workers aren't isolated", "source.go", "return s.isolated.IsDue()", "return s.isolated == nil"},
	{"the deaths of a payload that ran alone aren't counted", "../quarantine/attempts.go", "before.begun++", "_ = before"},
	{"a note stays after the worker has survived", "../quarantine/attempts.go", "err := a.note(context.Background(), d, nothing)", "err := error(nil)"},
	{"payloads without a result are stored", "../quarantine/isolation.go", "t.giveBack(r.Batch, r.Missing(rows), err)", "_ = err"},
	{"a result without a confirmation ends its input", "../results/store.go", "if answers[k].Err != nil {", "if answers[k].Err != nil && ctx.Err() != nil {"},
	{"the dead letters of records aren't stored", "../results/store.go", "if d.Frame.Table.Status(r).Failed() && !yield(", "if false && !yield("},
	{"an unstored dead letter ends its input in a batch", "../results/store.go", "case slices.Contains(unstored, l):", "case slices.Contains(unstored, l) && l.record != noRecord:"},
	{"a frame's result is stored although a record's dead letter isn't", "../results/store.go", "case slices.Contains(unstored, l):", "case slices.Contains(unstored, l) && l.record == noRecord:"},
	{"stored parts of a result are published again", "../results/store.go", "s.partial.add(lookup.Partial{ID: store.IDOf(s.msgs[n].Header)})", "_ = store.IDOf(s.msgs[n].Header)"},
	{"an input with a stored result is published again", "../results/clearance.go", "if found[n].Done {", "if found[n].Done && d.Msg == nil {"},
	{"a stored part ends its input", "../results/clearance.go", "if found[n].Done {", "if found[n].Done || len(found[n].Partial) > 0 {"},
	{"parts that a lookup finds are published again", "../results/clearance.go", "partial.add(found[n].Partial...)", "_ = partial"},
	{"an old result is published without a lookup", "../results/clearance.go", "if !ok || age >= limit {", "if !ok {"},
	{"an input stays cleared", "../results/clearance.go", "pause.Elapsed(d.Cleared, now) < limit {", "pause.Elapsed(d.Cleared, now) < 1000*limit {"},
	{"results are published after their deadline", "../results/protocol.go", "p.clearance.until(t.b.Items, t.items, time.Now())", "p.clearance.until(t.b.Items, t.items, time.Now()).Add(time.Hour)"},
	{"the last part is published before the others", "../results/protocol.go", "func(a store.Answer) bool { return a.Err != nil }", "func(a store.Answer) bool { return false }"},
	{"the marker of a commit is too high", "../results/commits.go", "At: position(&t.b.Items[last])", "At: store.Position{Sequence: t.b.Items[last].Sequence + 1, Stored: math.MaxInt64}"},
	{"redelivered inputs aren't looked up before a commit", "../results/commits.go", "certain := d.Sequence <= p.looked || d.First ||", "certain := true ||"},
	{"a committed dead letter doesn't settle its input", "../results/commits.go", "if c.earlier.Has(store.Letter{Input: in, Record: store.WholeMessage}) {", "if false {"},
	{"a result without a marker doesn't settle its input", "../results/commits.go", "return done && !d.Done, err", "return false, err"},
	{"parts of an earlier lease are committed again", "../results/commits.go", "d.Parts = parts", "_ = parts"},
	{"a committed dead letter is committed again", "../results/commits.go", "slices.DeleteFunc(letters, c.hasLetter)", "letters"},
	{"dead letters are published after their deadline", "../results/deadletter.go", "context.WithDeadline(ctx, until)", "context.WithDeadline(ctx, until.Add(time.Hour))"},
	{"dead letters are published without a lookup", "../results/deadletter.go", "return finished[l.d] || known.has(l.id)", "return known.has(l.id)"},
	{"stored dead letters of records are published again", "../results/deadletter.go", "return finished[l.d] || known.has(l.id)", "return finished[l.d]"},

	{"a fence doesn't end an open fast batch", "../store/chain.go", "if last.Fast {", "if last.Fast && false {"},
	{"a failed fast batch isn't read back", "../store/chain.go", "if unclear == nil && way == Fast {", "if unclear == nil && way == Fast && false {"},
	{"a refused commit counts as stored", "../store/chain.go", "c.advance(last.At, fence)\n\t\treturn fence, nil", "c.advance(last.At, fence)\n\t\treturn nil, nil"},
	{"a marker of another owner counts as one's own", "../store/chain.go", "case last.Owner != c.Owner:\n\t\treturn nil, ErrFenced", "case last.Owner == \"\":\n\t\treturn nil, ErrFenced"},
	{"a fence counts as the marker of the commit", "../store/chain.go", "case last.Number == sent.Number:", "case last.Number >= sent.Number:"},
	{"a fence forgets from where to read back", "../store/chain.go", "if at == c.at || c.beyond > at.Sequence {", "if at != c.at && c.beyond > at.Sequence {"},
	{"the fence of a failed fast batch says nothing of it", "../store/chain.go", "\t\tfence.Since = c.last\n", ""},
	{"the last input of an interrupted batch isn't read back", "../store/chain.go", "if in.Sequence > l.until {", "if in.Sequence >= l.until {"},
	{"stored parts of an interrupted batch are stored again", "../store/chain.go", "case strings.HasPrefix(each, id+\"/\"):", "case strings.HasPrefix(each, id+\"//\"):"},
	{"results behind the last marker aren't found", "../store/chain.go", "if sequence == 0 || sequence > r.before {", "if sequence == 0 || sequence > r.behind {"},
	{"a marker forgets earlier dead letters", "../store/chain.go", "c.letters.above(settled).add(letters)", "c.letters[:0:0].add(letters)"},
	{"the marker of a failed commit describes its state", "../store/chain.go", "m.State = &state", "_, m.State = state, b.State"},
	{"a state that has failed is used again", "../results/state.go", "case s.failed:", "case s.failed && false:"},
	{"a failure of the device while a log is replayed counts as the loss of the log", "../statelog/statelog.go", "errors.Is(e, device.ErrInvalid) && e.Code == 0", "e.Kind != device.ErrLost"},
	{"decisions aren't logged", "../results/state.go", "s.decisions.AppendLog(b.Log, s.logged, s.covered, s.entry)", "s.decisions.AppendLog(b.Log, 0, 0, s.entry)"},
	{"the first entries of a long frame aren't logged", "../results/state.go", "if b.Log = slices.Clone(s.earlier);", "if b.Log = nil;"},
	{"the last decisions that a marker covers aren't logged", "../results/state.go", "s.positions[i].Sequence > b.At.Sequence", "s.positions[i].Sequence >= b.At.Sequence"},
	{"the state doesn't decide on inputs with results above the last marker", "../results/commits.go", "d.Done = done && c.state != nil", "d.Done = false"},
	{"entries of fenced commits are replayed", stateLogFile, "if s.Behind < r.behind {", "if s.Behind < r.behind && false {"},
	{"a marker of a later owner isn't noticed", stateLogFile, "\tr.behind = s.Behind\n", "\n"},
	{"entries of failed commits are replayed", stateLogFile, "r.waiting[n-1].Last.Compare(info.Previous) > 0", "r.waiting[n-1].Last.Compare(info.Previous) > 1"},
	{"stale entries before a trimmed log are replayed", stateLogFile, "n > 0 && r.waiting[n-1].Last != s.Covered", "n > 0 && s.Entry == nil"},
	{"entries that no marker covers are replayed", stateLogFile, "r.flush(s.Covered)", "r.flush(info.Last)"},
	{"entries are replayed although one before them is missing", stateLogFile, "case info.Previous == tail:", "case info.Previous == tail || info.First > 0:"},
	{"entries that wait are forgotten", stateLogFile, "\t\ttail = r.waiting[n-1].Last\n", "\n"},
	{"the log is read from the middle of a generation", stateLogFile, "case info.First == 0:", "case len(r.waiting) == 0:"},
	{"a replica that has everything reads the log", stateLogFile, "records == want.Records && last == end {", "records == want.Records && last == end && r.spec == \"\" {"},
	{"entries are read twice", stateLogFile, "\t\tr.read = s.Sequence\n", ""},
	{"a replica of another log is used", stateLogFile, "case r.begins != want.Begins:", "case r.begins != want.Begins && r.spec == \"\":"},
	{"a replica of other parameters is used", stateLogFile, "case want.Spec != r.spec:", "case want.Spec == \"\":"},
	{"a replica with other records than the last marker is used", stateLogFile, "case records != want.Records || last != end:", "case last != end:"},
	{"a replica that ends elsewhere than the last marker is used", stateLogFile, "case records != want.Records || last != end:", "case records != want.Records:"},
	{"a log without the generation before the last one is used", stateLogFile, "case r.first > 0 && r.generation == r.first:", "case r.first > 0 && r.spec == \"\":"},
	{"a log is lost in its first generation", stateLogFile, "case r.first > 0 && r.generation == r.first:", "case r.generation == r.first:"},
	{"a replica keeps entries of failed commits of others", stateLogFile, "r.read, r.behind, r.waiting = at, behind, nil", "r.read, r.behind = at, behind"},
	{"an owner replays entries of fenced commits afterwards", stateLogFile, "r.read, r.behind, r.waiting = at, behind, nil", "r.read, r.waiting = at, nil"},
	{"a generation is trimmed too early", stateLogFile, "generation, [2]place{r.starts[1], commit}", "generation, [2]place{commit, commit}"},
	{"a generation is never trimmed", stateLogFile, "r.unneeded.Store(&unneeded)", "_ = unneeded"},
	{"a commit without records begins a generation", stateLogFile, "case generation > r.generation:", "case generation != r.generation:"},
	{"the log is purged again and again", stateLogFile, "\tr.purged.Store(below)\n", ""},

	{"a settled input stays in flight", "each.go", "l.release(d)\n\tdelete(l.returned, d.Sequence)", "delete(l.returned, d.Sequence)"},
}

// tested maps faults that the model can't find to the tests that find them. They cost time or memory, or need workers with and
// without commit markers.
var tested = map[string]string{
	"inputs are read although another worker is pinned":         "TestALeaseWithoutItsPinTakesNothing",
	"equal consumer sequences don't count as over-acknowledged": "TestIsOverAcknowledged",
	"a redelivery counts as an input that was read":             "TestFloorMissesNoDelivery",
	"a caution never ends":                                      "TestALeaseRelaxesAfterItsQuarantinedPayloads",
	"a comparison that killed a worker is repeated":             "TestWhatALeaseLeaves",
	"a lease that ends well stays annotated":                    "TestWhatALeaseLeaves",
	"unread deliveries keep their memory":                       "TestWhatIsNotProcessedHoldsNoMemory",
	"unread deliveries aren't given back":                       "TestWhatIsNotProcessedHoldsNoMemory",
	"redelivered inputs aren't looked up before a commit":       "TestACommitOfAKnownResultIsLookedUp",
	"a marker forgets earlier dead letters":                     "TestDeadLettersOfAChain",
	"dead letters are published after their deadline":           "TestTheWindowOfDeadLettersIsThatOfTheirStream",
}

// TestMutationsApply checks that each mutation still fits the code.
func TestMutationsApply(t *testing.T) {
	faults := map[string]bool{}
	for _, m := range mutations {
		m.apply(t)
		faults[m.fault] = true
	}
	for fault := range tested {
		if !faults[fault] {
			t.Errorf("no mutation has the fault %q", fault)
		}
	}
}

// apply returns the mutated text of the file.
func (m mutation) apply(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Errorf("%s has %d times what the mutation %q replaces, want once", m.file, n, m.fault)
	}
	return strings.Replace(string(text), m.old, m.new, 1)
}

// TestModelFindsMutations runs the lease model with each mutation, for MILLRACE_MUTATIONS each: a number of steps of each
// policy, or a duration.
func TestModelFindsMutations(t *testing.T) {
	budget := os.Getenv("MILLRACE_MUTATIONS")
	if budget == "" {
		t.Skip("NOT RUN: the faults of the lease that its model must find. Run make mutations (an hour)")
	}
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.fault, " ", "_"), func(t *testing.T) {
			found := m.run(t, budget)
			if t.Log(found); found == "" {
				t.Errorf("no test finds a violation in %s, although %s", budget, m.fault)
			}
		})
	}
}

// model returns the package and the pattern of the tests that run the code with the fault.
func (m mutation) model() (pkg, pattern string) {
	if test, ok := tested[m.fault]; ok {
		return filepath.Dir(m.file), "^" + test + "$"
	}
	switch m.file {
	case stateLogFile:
		return "../statelog", "."
	case "each.go", "shared.go", "source.go", "../quarantine/attempts.go", "../quarantine/isolation.go":
		return ".", "^TestModelOfTheLease$/^shared$"
	case "../results/clearance.go", "../results/deadletter.go", "../results/protocol.go", "../results/store.go":
		return ".", "^TestModelOfTheLease$/^(shared|window)$"
	case "../results/commits.go", "../results/state.go", "../store/chain.go":
		return ".", "^TestModelOfTheLease$/^markers$"
	}
	return ".", "^TestModelOfTheLease$/^(window|markers)$"
}

// run returns the violation that the tests report for the mutation, or "" for none.
func (m mutation) run(t *testing.T, budget string) string {
	t.Helper()
	folder := t.TempDir()
	pkg, pattern := m.model()
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	replace, _ := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	for name, text := range map[string][]byte{mutated: []byte(m.apply(t)), overlay: replace} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(folder, "model.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "./"+pkg).CombinedOutput(); err != nil {
		t.Fatalf("build with the mutation: %v\n%s", err, out)
	}
	tests := exec.Command(program, "-test.short", "-test.v", "-test.run", pattern, "-test.timeout", "30m")
	tests.Env = append(os.Environ(), fmt.Sprint("MILLRACE_MODEL_FOR=", budget), "MILLRACE_MUTATIONS=")
	tests.Dir = pkg
	return firstFailure(t, tests)
}

// firstFailure runs tests until one fails, and returns the line that reports it, or "" for none.
func firstFailure(t *testing.T, tests *exec.Cmd) string {
	t.Helper()
	out, err := tests.StdoutPipe()
	tests.Stderr = tests.Stdout
	if err = errors.Join(err, tests.Start()); err != nil {
		t.Fatal(err)
	}
	ran := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if strings.Contains(line, "test timed out") {
			t.Fatal(line)
		}
		if failure.MatchString(line) {
			_ = tests.Process.Kill()
			_ = tests.Wait()
			return strings.TrimSpace(line)
		}
		ran = ran || strings.Contains(line, "--- PASS")
	}
	if err := tests.Wait(); err != nil || !ran {
		t.Fatalf("the tests end without a result: %v", err)
	}
	return ""
}

// failure matches the line of a violation of the model, of a test that fails, or of a panic.
var failure = regexp.MustCompile(`BROKEN: |--- FAIL|^(panic|fatal error): `)
