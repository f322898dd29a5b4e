package topology

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
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
		"no bounds, exclusive": func() { r.exclusive(2); r.topology.Kept = Kept{} },
	}
}

// advised returns the advised commands for missing streams and consumers.
func (r *rig) advised() (commands []string) {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: 10, BatchBytes: roomy, Linger: time.Millisecond}) {
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

// TestAdvisedCommandsCreateWhatProvisionCreates interprets the commands like the nats command. The result must equal
// the streams and consumers that Provision creates.
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
				for _, words := range shellWords(t, command) {
					byHand.perform(words)
				}
			}
			byHand.wantTheSame(provisioned)
		})
	}
}

// TestAdvisedCommandsWithTheRealProgram runs the commands with the installed nats command.
func TestAdvisedCommandsWithTheRealProgram(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nats"); err != nil {
		t.Skip("SKIPPED: no nats command, so its flags are only read as version 0.5.1 documents them")
	}
	for name := range topologies(newRig(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provisioned, byHand := newRig(t), newRig(t)
			for _, r := range []*rig{provisioned, byHand} {
				topologies(r)[name]()
			}
			provisioned.provision()
			for _, command := range byHand.advised() {
				byHand.shell(command)
			}
			byHand.wantTheSame(provisioned)
		})
	}
}

func (r *rig) shell(command string) {
	r.Helper()
	cmd := exec.CommandContext(r.Ctx(), "sh", "-e", "-c", command)
	cmd.Env = append(cmd.Environ(), "NATS_URL="+r.NC.ConnectedUrl(), "HOME="+r.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Errorf("%s: %v\n%s", command, err, out)
	}
}

// wantTheSame compares the streams and consumers of two servers, except for descriptions.
func (r *rig) wantTheSame(want *rig) {
	r.Helper()
	if got := r.streamNames(); !slices.Equal(got, want.streamNames()) {
		r.Fatalf("streams %q, want %q", got, want.streamNames())
	}
	for _, name := range r.streamNames() {
		if got, want := r.StreamConfig(name), want.StreamConfig(name); !sameStream(got, want) {
			r.Errorf("%s:\n%+v, want\n%+v", name, got, want)
		}
	}
	got, wanted := r.consumerSettings(), want.consumerSettings()
	if len(got) != len(wanted) {
		r.Errorf("consumers %v, want %v", got, wanted)
	}
	for name, c := range wanted {
		if got[name] != c {
			r.Errorf("%s:\n%s, want\n%s", name, got[name], c)
		}
	}
}

func (r *rig) consumerSettings() map[string]string {
	r.Helper()
	s := r.Stream(r.topology.Stream)
	all := map[string]string{}
	list := s.ListConsumers(r.Ctx())
	for info := range list.Info() {
		c := info.Config
		c.Description = ""
		if c.PauseUntil != nil && c.PauseUntil.IsZero() { // the nats command sends a zero time
			c.PauseUntil = nil
		}
		c.Metadata = map[string]string{MarkDelivered: c.Metadata[MarkDelivered]}
		c.FilterSubjects, c.FilterSubject = filtersOf(c), ""
		all[c.Durable] = fmt.Sprintf("%+v", c)
	}
	if err := list.Err(); err != nil {
		r.Fatal(err)
	}
	return all
}

var loop = regexp.MustCompile(`^for p in \$\(seq (\d+) (\d+)\); do (.*); done$`)

// shellWords splits a command into words like a shell. A loop results in a list of words for each iteration.
func shellWords(t testing.TB, command string) (all [][]string) {
	t.Helper()
	bodies := []string{command}
	if m := loop.FindStringSubmatch(command); m != nil {
		first, _ := strconv.Atoi(m[1])
		last, _ := strconv.Atoi(m[2])
		bodies = nil
		for p := first; p <= last; p++ {
			bodies = append(bodies, strings.ReplaceAll(m[3], "$p", strconv.Itoa(p)))
		}
	}
	for _, body := range bodies {
		var words []string
		for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(body, -1) {
			words = append(words, strings.Trim(w, `'"`))
		}
		all = append(all, words)
	}
	return all
}

// perform has the same effect as the nats command of version 0.5.1 with these words.
func (r *rig) perform(words []string) {
	r.Helper()
	flags := map[string][]string{}
	var names []string
	for i := 3; i < len(words); i++ {
		name, value, inline := strings.Cut(words[i], "=")
		switch {
		case !strings.HasPrefix(name, "--"):
			names = append(names, name)
			continue
		case slices.Contains([]string{"--defaults", "--pull", "--allow-fast", "--allow-batch", "--allow-rollup", "--no-allow-direct", "--force"}, name):
			value = "true"
		case !inline:
			i++
			value = words[i]
		}
		flags[name] = append(flags[name], value)
	}
	switch strings.Join(words[:3], " ") {
	case "nats stream add":
		if _, err := r.JS.CreateStream(r.Ctx(), r.streamOfFlags(names[0], flags)); err != nil {
			r.Fatal(err)
		}
	case "nats stream edit":
		c := r.StreamConfig(names[0])
		r.edit(&c, flags)
		r.Create(c)
	case "nats consumer add":
		if _, err := r.JS.CreateConsumer(r.Ctx(), names[0], r.consumerOfFlags(names[1], flags)); err != nil {
			r.Fatal(err)
		}
	default:
		r.Fatalf("no command for %q", words)
	}
	if len(flags) > 0 {
		r.Errorf("unknown flags %v", flags)
	}
}

// edit removes flags of `nats stream edit`, and changes the settings like that command.
func (r *rig) edit(c *jetstream.StreamConfig, flags map[string][]string) {
	r.Helper()
	if subjects := flags["--subjects"]; subjects != nil {
		c.Subjects = subjects
		delete(flags, "--subjects")
	}
	take := r.taker(flags)
	take("--force")
	c.AllowBatchPublish = take("--allow-fast") != "" || c.AllowBatchPublish
	c.AllowAtomicPublish = take("--allow-batch") != "" || c.AllowAtomicPublish
	c.AllowRollup = take("--allow-rollup") != "" || c.AllowRollup
	if take("--retention") == "limits" {
		c.Retention = jetstream.LimitsPolicy
	}
}

// taker returns a function that removes a flag and returns its only value.
func (r *rig) taker(flags map[string][]string) func(string) string {
	return func(name string) string {
		values := flags[name]
		delete(flags, name)
		switch len(values) {
		case 0:
			return ""
		case 1:
			return values[0]
		}
		r.Errorf("%s is given %d times", name, len(values))
		return ""
	}
}

func (r *rig) streamOfFlags(name string, flags map[string][]string) jetstream.StreamConfig {
	r.Helper()
	c := jetstream.StreamConfig{Name: name, Subjects: flags["--subjects"], AllowDirect: true}
	for _, pair := range flags["--metadata"] {
		key, value, _ := strings.Cut(pair, "=")
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[key] = value
	}
	delete(flags, "--subjects")
	delete(flags, "--metadata")
	take := r.taker(flags)
	if take("--defaults") == "" {
		r.Error("without --defaults the command asks questions")
	}
	c.AllowDirect = take("--no-allow-direct") == ""
	c.AllowBatchPublish, c.AllowAtomicPublish = take("--allow-fast") != "", take("--allow-batch") != ""
	c.Retention = map[string]jetstream.RetentionPolicy{"limits": jetstream.LimitsPolicy, "work": jetstream.WorkQueuePolicy, "interest": jetstream.InterestPolicy}[take("--retention")]
	if take("--storage") == "memory" {
		c.Storage = jetstream.MemoryStorage
	}
	if take("--discard") == "new" {
		c.Discard = jetstream.DiscardNew
	}
	c.MaxBytes = r.bytes(take("--max-bytes"))
	c.MaxAge, c.Duplicates = r.duration(take("--max-age")), r.duration(take("--dupe-window"))
	if source := take("--transform-source"); source != "" {
		c.SubjectTransform = transform(source, take("--transform-destination"))
	}
	return c
}

func (r *rig) consumerOfFlags(name string, flags map[string][]string) jetstream.ConsumerConfig {
	r.Helper()
	c := jetstream.ConsumerConfig{Durable: name, FilterSubjects: flags["--filter"]}
	delete(flags, "--filter")
	take := r.taker(flags)
	if take("--defaults") == "" || take("--pull") == "" || take("--deliver") != "all" {
		r.Error("without --defaults, --pull and --deliver the command asks questions")
	}
	c.AckPolicy = map[string]jetstream.AckPolicy{"all": jetstream.AckAllPolicy, "explicit": jetstream.AckExplicitPolicy, "none": jetstream.AckNonePolicy}[take("--ack")]
	c.AckWait = r.duration(take("--wait"))
	c.MaxDeliver, _ = strconv.Atoi(take("--max-deliver"))
	c.MaxAckPending, _ = strconv.Atoi(take("--max-pending"))
	if group := take("--pinned-groups"); group != "" {
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{group}, r.duration(take("--pinned-ttl"))
	}
	if key, value, found := strings.Cut(take("--metadata"), "="); found {
		c.Metadata = map[string]string{key: value}
	}
	return c
}

func (r *rig) duration(text string) time.Duration {
	r.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.Error(err)
	}
	return d
}

// bytes parses a size. The number before the unit has 32 bits.
func (r *rig) bytes(text string) int64 {
	r.Helper()
	if text == "" {
		return 0
	}
	m := regexp.MustCompile(`^(\d+)(GiB|MiB|KiB)?$`).FindStringSubmatch(text)
	if m == nil {
		r.Fatalf("the size %q can't be read", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil {
		r.Error(err)
	}
	return n * map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
}

func TestExplainCommandsSaysWhereTheCommandComesFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := ExplainCommands(Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: 10, BatchBytes: roomy}))
	last := all[len(all)-1]
	if last.Level != finding.OK || !strings.Contains(last.Found, "https://github.com/nats-io/natscli") {
		t.Errorf("the last finding is %v", last)
	}
	r.provision()
	good := Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: 10, BatchBytes: roomy})
	if got := ExplainCommands(good); len(got) != len(good) {
		t.Errorf("no command is advised, and the last finding is %v", got[len(got)-1])
	}
}
