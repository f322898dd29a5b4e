package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
)

// topologies returns functions that set each setting that changes the created streams and consumers.
func topologies(r *rig) map[string]func() {
	return map[string]func(){
		"shared":    func() {},
		"exclusive": func() { r.exclusive(3) },
		"limits, in memory, two filters": func() {
			r.topology.Subjects = []string{"ingest.a.>", "ingest.b.*"}
			r.topology.Storage, r.topology.Kept.Trim = jetstream.MemoryStorage, false
			r.topology.Kept.Inputs, r.topology.Kept.DeadLetters = NewBounds(48*time.Hour, 5<<30+1), NewBounds(time.Minute, 0)
		},
		"a state":              func() { r.stateful(); r.topology.Partitions = 3 },
		"no bounds, exclusive": func() { r.exclusive(2); r.topology.Kept = Kept{} },
	}
}

// advised returns the advised commands for missing streams and consumers.
func (r *rig) advised() (commands []string) {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, r.use) {
		if !f.Missing {
			continue
		}
		command, found := strings.CutPrefix(f.Advice, "create it (")
		command, _, closed := strings.Cut(command, "), or set MILLRACE_PROVISION=true")
		if !found || !closed {
			r.Fatalf("%q advises %q, and no command", f, f.Advice)
		}
		commands = append(commands, command)
	}
	return commands
}

// TestAdvisedCommandsCreateWhatProvisionCreates shows that the commands create the streams and consumers that Provision creates.
func TestAdvisedCommandsCreateWhatProvisionCreates(t *testing.T) {
	t.Parallel()
	for name := range topologies(newRig(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provisioned, byHand := newRig(t), newRig(t)
			for _, r := range []*rig{provisioned, byHand} {
				topologies(r)[name]()
			}
			provisioned.provision()
			commands := byHand.advised()
			if len(commands) != 4 {
				t.Fatalf("the commands are %q, want three streams and consumers", commands)
			}
			for _, command := range commands {
				byHand.perform(command)
			}
			if got, want := byHand.assets(), provisioned.assets(); !slices.Equal(got, want) {
				t.Errorf("the commands create\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// assets describes the streams and the consumers of the input stream. It omits settings that only an API request can change.
func (r *rig) assets() (lines []string) {
	r.Helper()
	for _, name := range r.streamNames() {
		c := r.StreamConfig(name)
		lines = append(lines, describe(&c, &c.Description, c.Metadata))
	}
	for _, name := range r.Consumers("INGEST") {
		c := r.ConsumerInfo("INGEST", name).Config
		c.FilterSubjects, c.FilterSubject = jsapi.Filters(c), ""
		if c.PauseUntil != nil && c.PauseUntil.IsZero() { // the nats command sends a zero time
			c.PauseUntil = nil
		}
		lines = append(lines, describe(&c, &c.Description, c.Metadata))
	}
	return lines
}

func describe(config any, description *string, metadata map[string]string) string {
	*description = ""
	maps.DeleteFunc(metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") }) // set by the server
	text, err := json.Marshal(config)
	return fmt.Sprint(string(text), err)
}

var loop = regexp.MustCompile(`^for p in \$\(seq (\d+) (\d+)\); do (.*); done$`)

// perform runs a command with the installed nats command. If none is installed, it simulates version 0.5.1.
func (r *rig) perform(command string) {
	r.Helper()
	if _, err := exec.LookPath("nats"); err == nil {
		cmd := exec.CommandContext(r.Ctx(), "sh", "-e", "-c", command)
		cmd.Env = append(cmd.Environ(), "NATS_URL="+r.NC.ConnectedUrl(), "HOME="+r.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Errorf("%s: %v\n%s", command, err, out)
		}
		return
	}
	m := loop.FindStringSubmatch(command)
	if m == nil {
		r.run(command)
		return
	}
	first, _ := strconv.Atoi(m[1])
	last, _ := strconv.Atoi(m[2])
	for p := first; p <= last; p++ {
		r.run(strings.ReplaceAll(m[3], "$p", strconv.Itoa(p)))
	}
}

// run interprets a command.
func (r *rig) run(command string) {
	r.Helper()
	var words []string
	for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(command, -1) {
		words = append(words, strings.Trim(w, `'"`))
	}
	var err error
	switch name := words[3]; strings.Join(words[:3], " ") {
	case "nats stream add":
		c := streamConfig{Name: name, AllowDirect: true}
		apply(r, &c, words[4:], streamFlags, "--defaults", "--retention")
		_, err = r.JS.CreateStream(r.Ctx(), c)
	case "nats stream edit":
		c := r.StreamConfig(name)
		if slices.Contains(words, "--subjects") {
			c.Subjects = nil // the flags replace them
		}
		apply(r, &c, words[4:], streamFlags)
		r.Create(c)
	case "nats consumer add":
		c := consumerConfig{Durable: words[4]}
		apply(r, &c, words[5:], consumerFlags, "--defaults", "--pull", "--deliver", "--ack")
		_, err = r.JS.CreateConsumer(r.Ctx(), name, c)
	default:
		r.Fatalf("no command for %q", words)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// apply changes a configuration according to flags. It fails without the required flags, because the command would prompt for them.
func apply[T any](r *rig, c *T, words []string, effects map[string]func(*T, string), required ...string) {
	r.Helper()
	for i := 0; i < len(words); i++ {
		flag, value, inline := strings.Cut(words[i], "=")
		effect, known := effects[flag]
		if !known {
			r.Fatalf("unknown flag %s in %q", flag, words)
		}
		required = slices.DeleteFunc(required, func(f string) bool { return f == flag })
		if !inline && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
			i++
			value = words[i]
		}
		effect(c, value)
	}
	if len(required) > 0 {
		r.Errorf("without %q the command asks questions: %q", required, words)
	}
}

var streamFlags = map[string]func(*streamConfig, string){
	"--defaults": func(*streamConfig, string) {}, "--force": func(*streamConfig, string) {},
	"--subjects":              func(c *streamConfig, v string) { c.Subjects = append(c.Subjects, v) },
	"--transform-source":      func(c *streamConfig, v string) { c.SubjectTransform = transform(v, "") },
	"--transform-destination": func(c *streamConfig, v string) { c.SubjectTransform.Destination = v },
	"--storage": func(c *streamConfig, v string) {
		c.Storage = map[string]jetstream.StorageType{"memory": jetstream.MemoryStorage}[v]
	},
	"--retention": func(c *streamConfig, v string) {
		c.Retention = map[string]jetstream.RetentionPolicy{"limits": jetstream.LimitsPolicy, "work": jetstream.WorkQueuePolicy, "interest": jetstream.InterestPolicy}[v]
	},
	"--discard": func(c *streamConfig, v string) {
		c.Discard = map[string]jetstream.DiscardPolicy{"new": jetstream.DiscardNew}[v]
	},
	"--max-bytes":            func(c *streamConfig, v string) { c.MaxBytes = size(v) },
	"--max-age":              func(c *streamConfig, v string) { c.MaxAge = duration(v) },
	"--dupe-window":          func(c *streamConfig, v string) { c.Duplicates = duration(v) },
	"--allow-fast":           func(c *streamConfig, _ string) { c.AllowBatchPublish = true },
	"--allow-batch":          func(c *streamConfig, _ string) { c.AllowAtomicPublish = true },
	"--max-msgs-per-subject": func(c *streamConfig, v string) { c.MaxMsgsPerSubject, _ = strconv.ParseInt(v, 10, 64) },
	"--allow-msg-ttl":        func(c *streamConfig, _ string) { c.AllowMsgTTL = true },
	"--allow-rollup":         func(c *streamConfig, _ string) { c.AllowRollup = true },
	"--ack":                  func(c *streamConfig, _ string) { c.NoAck = false },
	"--no-allow-direct":      func(c *streamConfig, _ string) { c.AllowDirect = false },
	"--metadata": func(c *streamConfig, v string) {
		key, value, _ := strings.Cut(v, "=")
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[key] = value
	},
}

var consumerFlags = map[string]func(*consumerConfig, string){
	"--defaults": func(*consumerConfig, string) {}, "--pull": func(*consumerConfig, string) {}, "--deliver": func(*consumerConfig, string) {},
	"--filter": func(c *consumerConfig, v string) { c.FilterSubjects = append(c.FilterSubjects, v) },
	"--ack": func(c *consumerConfig, v string) {
		c.AckPolicy = map[string]jetstream.AckPolicy{"all": jetstream.AckAllPolicy, "explicit": jetstream.AckExplicitPolicy}[v]
	},
	"--wait":        func(c *consumerConfig, v string) { c.AckWait = duration(v) },
	"--max-deliver": func(c *consumerConfig, v string) { c.MaxDeliver, _ = strconv.Atoi(v) },
	"--max-pending": func(c *consumerConfig, v string) { c.MaxAckPending, _ = strconv.Atoi(v) },
	"--pinned-groups": func(c *consumerConfig, v string) {
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{v}
	},
	"--pinned-ttl": func(c *consumerConfig, v string) { c.PinnedTTL = duration(v) },
	"--metadata": func(c *consumerConfig, v string) {
		key, value, _ := strings.Cut(v, "=")
		c.Metadata = map[string]string{key: value}
	},
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// size parses a size. The number before the unit has 32 bits.
func size(text string) int64 {
	m := regexp.MustCompile(`^(-1|\d+)(GiB|MiB|KiB)?$`).FindStringSubmatch(text)
	n, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil {
		panic(err)
	}
	return n * map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
}

func TestExplainCommandsSaysWhereTheCommandComesFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := ExplainCommands(Inspect(r.Ctx(), r.NC, r.topology, r.use))
	last := all[len(all)-1]
	if last.Level != finding.OK || !strings.Contains(last.Found, "https://github.com/nats-io/natscli") {
		t.Errorf("the last finding is %v", last)
	}
	r.provision()
	good := Inspect(r.Ctx(), r.NC, r.topology, r.use)
	if got := ExplainCommands(good); len(got) != len(good) {
		t.Errorf("no command is advised, and the last finding is %v", got[len(got)-1])
	}
}

// moves matches the commands that give dead letters their own stream.
var moves = regexp.MustCompile(`nats stream (edit RESULTS --subjects.*?--force|add RESULTS_DEADLETTER.*?--defaults)`)

// TestMovedDeadLettersHaveTheBoundsOfASetting shows that the advised commands create the stream that Provision creates, with the
// duplicate window of the results. No warning is left.
func TestMovedDeadLettersHaveTheBoundsOfASetting(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]Bounds{
		"the defaults": defaults().DeadLetters, "an age": NewBounds(48*time.Hour, 3<<30), "a short age": NewBounds(time.Minute, 0), "no bounds": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, provisioned := newRig(t), newRig(t)
			for _, each := range []*rig{r, provisioned} {
				each.topology.Kept.DeadLetters = bounds
			}
			provisioned.provision()
			r.add("RESULTS", "results,results.>,deadletter,deadletter.>", streamConfig{Duplicates: 5 * time.Minute})
			for _, f := range Inspect(r.Ctx(), r.NC, r.topology, r.use) {
				for _, command := range moves.FindAllString(f.Advice, -1) {
					r.perform(command)
				}
			}
			got, want := r.StreamConfig("RESULTS_DEADLETTER"), provisioned.StreamConfig("RESULTS_DEADLETTER")
			if want.Duplicates = 5 * time.Minute; bounds.MaxAge > 0 {
				want.Duplicates = min(want.Duplicates, bounds.MaxAge)
			}
			if !sameStream(got, want) {
				t.Errorf("the commands create\n%+v, want\n%+v", got, want)
			}
			lines := r.found()
			wantLine(t, lines, "ok dead letters deadletter.>", "stored in stream RESULTS_DEADLETTER")
			for _, line := range lines {
				if strings.HasPrefix(line, "warning dead letters") && bounds != (Bounds{}) {
					t.Errorf("after the commands: %s", line)
				}
			}
		})
	}
}
